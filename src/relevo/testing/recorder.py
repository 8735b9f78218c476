"""Records events of a `Cluster` node for the test."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from relevo.kernel.leases.hosts import instant

TRACE_VARIABLE = "RELEVO_TESTING_TRACE"
SKEW_VARIABLE = "RELEVO_TESTING_SKEW"


class Recorder:
    """Appends events to the node's trace, one line each, at once, so that they survive SIGKILL."""

    def __init__(self, path: str, host: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._host = host

    def __call__(self, event: str, *, at: float | None = None, **details: Any) -> None:
        """Record an event; `at` is an earlier instant."""
        entry = {"at": instant() if at is None else at, "host": self._host, "event": event}
        os.write(self._file, msgspec.json.encode(entry | details) + b"\n")
