"""Lists the tests that fail in a file, one a line, while a long run is still going on.

The file begins empty; `python -m tests.kernel.postgres.versions 16 -- @failures-16.txt` runs those
that it lists again. At the end a row for the table in docs/reference/postgresql.md is printed.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Name the file and what the row calls the server."""
    parser.addoption("--failures", type=Path, help="list the tests that fail in this file")
    parser.addoption("--server", default="", help="the server's version, for the row at the end")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that gets all reports writes."""
    if config.option.failures is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureList(config.option.failures), "failures")


class FailureList:
    """Appends each test that fails, or file that cannot be collected, once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed: set[str] = set()
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See a test fail, also in its fixtures."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """See a file that cannot be collected."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self._listed:
            self._listed.add(report.nodeid)
            with self._path.open("a") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Print the row: date, version, what, result."""
        passed = len(terminalreporter.stats.get("passed", ()))
        failed = len(self._listed)
        result = f"{passed:,} of {passed + failed:,} pass" if failed else f"{passed:,} pass"
        given = [one for one in map(str, config.invocation_params.args) if one[:6] == "tests/"]
        again = any("::" in one for one in given)
        what = "those that failed" if again else " ".join(given) or "the whole suite"
        row = (datetime.date.today().isoformat(), config.option.server, what, result)
        terminalreporter.line(f"| {' | '.join(row)} |")
        if failed:
            terminalreporter.line(f"those that fail are listed in {self._path}")
