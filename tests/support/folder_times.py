"""How long the tests of each folder took, at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SHOWN_FROM_SECONDS = 60.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the folders of a long run, the slowest first; workers' times are added up."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                folder = report.nodeid.split("::")[0].rpartition("/")[0]
                seconds[folder] += report.duration
                tests[folder] += report.when == "call"
    if sum(seconds.values()) < SHOWN_FROM_SECONDS:
        return
    terminalreporter.section("seconds by folder")
    for folder, spent in seconds.most_common():
        terminalreporter.line(f"{spent:8.1f}  {tests[folder]:5} tests  {folder}")
