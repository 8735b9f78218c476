"""Relevo's lines inside other programs, and in its own."""

from __future__ import annotations

import io
import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from relevo.kernel.telemetry import logs
from tests.support.logs import unchanged_logging

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logs.get_logger("relevo.kernel.example")


@contextmanager
def program_without_logging() -> Iterator[io.StringIO]:
    """A program that has configured nothing; gives what goes to standard error."""
    root, error = logging.getLogger(), io.StringIO()
    handlers = list(root.handlers)
    with pytest.MonkeyPatch.context() as patch, unchanged_logging():
        root.handlers.clear()
        logging.getLogger(logs.ROOT).handlers.clear()
        logging.getLogger(logs.ROOT).setLevel(logging.NOTSET)
        patch.setattr("sys.stderr", error)
        try:
            yield error
        finally:
            root.handlers[:] = handlers


def test_a_program_that_asks_for_nothing_gets_warnings_only() -> None:
    with program_without_logging() as error:
        logs.join_program(None)
        logs.join_program(None)  # a second App
        log.info("host.started", host="a")
        log.warning("jobs.wait_failed", error="gone")
    (line,) = map(json.loads, error.getvalue().splitlines())
    assert (line["event"], line["error"], line["level"]) == ("jobs.wait_failed", "gone", "warning")


def test_a_level_that_is_asked_for_counts() -> None:
    with program_without_logging() as error:
        logs.join_program("debug")
        log.debug("lease.acquired", lease="north")
    assert json.loads(error.getvalue())["lease"] == "north"


def test_the_logging_configuration_of_the_program_counts() -> None:
    with program_without_logging() as error:
        own = io.StringIO()
        logging.getLogger(logs.ROOT).setLevel(logging.INFO)
        logs.join_program(None)
        logging.basicConfig(stream=own, format="%(levelname)s %(name)s: %(message)s")
        log.info("host.started", host="a")
    assert own.getvalue() == "INFO relevo.kernel.example: host.started host='a'\n"
    assert error.getvalue() == ""


def test_our_own_programs_write_json_with_the_traceback() -> None:
    with program_without_logging() as error:
        logs.configure_logs("json", "info")
        logs.join_program(None)
        try:
            raise KeyError("soup")
        except KeyError:
            log.exception("loop.failed", loop="cook")
    (line,) = map(json.loads, error.getvalue().splitlines())
    assert (line["event"], line["loop"], line["level"]) == ("loop.failed", "cook", "error")
    assert "KeyError: 'soup'" in line["exception"]
