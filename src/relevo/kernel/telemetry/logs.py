"""One line per event, for people or for machines."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure_logs(
    form: Literal["auto", "console", "json"] = "auto",
    level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Send logs to standard error: coloured on a terminal, JSON elsewhere by default."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        # Plain tracebacks: the pretty ones print local variables, and those may hold secrets.
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if not console else _untouched,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _untouched(
    _logger: object, _name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return event
