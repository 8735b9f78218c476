"""The lines that Relevo logs while a test looks, as fields."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from relevo.kernel.telemetry.logs import FIELDS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(dict(getattr(record, FIELDS)))


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Collect lines of every level."""
    logger, recorder = logging.getLogger(ROOT), _Recorder()
    level = logger.level
    logger.addHandler(recorder)
    logger.setLevel(logging.DEBUG)
    try:
        yield recorder.lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(recorder)


@contextmanager
def unchanged_logging() -> Iterator[None]:
    """Undo what a command in this process configures."""
    logger = logging.getLogger(ROOT)
    kept = (list(logger.handlers), logger.level, logger.propagate)
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = kept[0], kept[2]
        logger.setLevel(kept[1])
