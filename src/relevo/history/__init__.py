"""History of figures over an hour, a day and 30 days: how much waited, was done and failed."""

from __future__ import annotations

from relevo.history.service import History, HistoryPart

__all__ = ["History", "HistoryPart"]
