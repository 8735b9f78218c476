"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("dish", models.TextField()),
            ],
        ),
    )
