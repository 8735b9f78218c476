"""Tables."""

from django.db import models


class Order(models.Model):
    """What a customer wants."""

    dish = models.TextField()
