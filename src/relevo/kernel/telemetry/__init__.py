"""Logs and metrics: what Relevo tells about itself while it runs."""

from relevo.kernel.telemetry.logs import configure_logs

__all__ = ["configure_logs"]
