"""The Django application, which brings the command `manage.py relevo_host`."""

from __future__ import annotations

from django.apps import AppConfig


class RelevoConfig(AppConfig):
    """Relevo as an entry of `INSTALLED_APPS`."""

    name = "relevo.integrations.django"
    label = "relevo"
    verbose_name = "Relevo"
