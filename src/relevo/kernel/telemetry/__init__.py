"""Logs, metrics and spans."""

from relevo.kernel.telemetry.logs import configure_logs

__all__ = ["configure_logs"]
