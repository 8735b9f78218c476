"""Matching: the index of workers and waiting jobs, and its decisions. Pure.

`index` decides; `situation` has its vocabulary; the others are the structures that make it fast.
"""

from relevo.router.matching.index import Index
from relevo.router.matching.situation import (
    Decision,
    JobState,
    NeedsScores,
    QueueState,
    Scoring,
    WorkerState,
)

__all__ = [
    "Decision",
    "Index",
    "JobState",
    "NeedsScores",
    "QueueState",
    "Scoring",
    "WorkerState",
]
