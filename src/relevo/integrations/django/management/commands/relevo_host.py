"""`manage.py relevo_host`: run the jobs of a Django project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand

from relevo.integrations.django import client
from relevo.kernel.telemetry import configure_logs

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    """Runs a host."""

    help = "Run the jobs of RELEVO_APP, and Django's tasks, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the name of the host."""
        parser.add_argument("--name", help="Unique name of this host. Default: generated.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Serve until a signal."""
        app = client().app
        if hasattr(settings, "TASKS"):
            from relevo.integrations.django.tasks import register_backends

            register_backends(app)
        configure_logs(app.settings.log_format, app.settings.log_level or "info")
        served = ", ".join(sorted(app.jobs.registry.handlers)) or "nothing of its own"
        notice = f"serving {served}; Ctrl-C drains and stops"
        self.stderr.write(notice)
        app.run(name=options["name"])
