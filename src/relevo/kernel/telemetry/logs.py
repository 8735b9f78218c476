"""One line per event, through the standard library's logger `relevo`.

In another program, its logging configuration decides: its handlers get Relevo's lines, and only
warnings and errors unless `RELEVO_LOG_LEVEL` or `logging.getLogger("relevo").setLevel(…)` asks for
more. Relevo's own programs (`relevo up`, `relevo run`, …) call `configure_logs`.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict

ROOT: Final = "relevo"
FIELDS: Final = "relevo"
"""The attribute of a log record that holds the event and its fields."""

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["auto", "console", "json"]


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger of events with fields: `log.warning("jobs.wait_failed", error="…")`.

    It does not depend on how a program configures structlog.
    """
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _as_record,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def _as_record(_logger: object, _name: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of the standard logger: a line for any handler, and the fields beside it."""
    exc_info = event.pop("exc_info", None)
    words = [str(event.get("event", ""))]
    words += [f"{name}={value!r}" for name, value in event.items() if name != "event"]
    return (" ".join(words),), {"exc_info": exc_info, "extra": {FIELDS: event}}


def join_program(level: Level | None) -> None:
    """Log as a part of another program: warnings and errors, or from `level` on if one is given.

    A level that the program has set stays, and its handlers are used. Without any, lines go to
    standard error.
    """
    logger = logging.getLogger(ROOT)
    if level is not None:
        logger.setLevel(level.upper())
    elif logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    if not any(isinstance(handler, OwnHandler) for handler in logger.handlers):
        logger.addHandler(OwnHandler("auto", only_without_others=True))


def configure_logs(form: Form = "auto", level: Level = "info") -> None:
    """Send logs to standard error: coloured on a terminal, JSON elsewhere by default."""
    logger = logging.getLogger(ROOT)
    for handler in [each for each in logger.handlers if isinstance(each, OwnHandler)]:
        logger.removeHandler(handler)
    logger.addHandler(OwnHandler(form))
    logger.setLevel(level.upper())
    logger.propagate = False


def filter_lines(added: logging.Filter) -> None:
    """Let a filter see each line that Relevo itself writes; one of each kind is enough."""
    for handler in logging.getLogger(ROOT).handlers:
        is_new = not any(type(each) is type(added) for each in handler.filters)
        if isinstance(handler, OwnHandler) and is_new:
            handler.addFilter(added)


class OwnHandler(logging.StreamHandler[Any]):
    """Writes Relevo's lines to standard error."""

    def __init__(self, form: Form, *, only_without_others: bool = False) -> None:
        super().__init__(sys.stderr)
        self._only_without_others = only_without_others
        console = form == "console" or (form == "auto" and sys.stderr.isatty())
        self.setFormatter(_LineFormatter(console=console))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless a handler of the host program does."""
        if self._only_without_others and self._others():
            return
        super().emit(record)

    def _others(self) -> bool:
        own, root = logging.getLogger(ROOT), logging.getLogger()
        return own.handlers != [self] or (own.propagate and bool(root.handlers))


class _LineFormatter(logging.Formatter):
    def __init__(self, *, console: bool) -> None:
        super().__init__()
        # Plain tracebacks: the pretty ones print local variables, and those may hold secrets.
        self._console = (
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if console
            else None
        )
        self._json = structlog.processors.JSONRenderer()

    def format(self, record: logging.LogRecord) -> str:
        """Return the event with its fields, level and time."""
        event: EventDict = {"event": record.getMessage(), **getattr(record, FIELDS, {})}
        event["level"] = record.levelname.lower()
        time = datetime.fromtimestamp(record.created, UTC)
        event["timestamp"] = time.isoformat().replace("+00:00", "Z")
        if self._console is not None:
            if record.exc_info:
                event["exc_info"] = record.exc_info
            return str(self._console(None, record.levelname.lower(), event))
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return str(self._json(None, record.levelname.lower(), event))
