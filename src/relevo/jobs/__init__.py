"""System jobs: work that runs apart from the request that caused it (async-service)."""

from relevo.jobs.batches.handles import BatchHandle
from relevo.jobs.batches.model import BatchResult, JobBatch
from relevo.jobs.core.reasons import JobExplanation
from relevo.jobs.core.uniqueness import Unique
from relevo.jobs.errors import (
    BatchClosed,
    BatchMissing,
    JobCanceled,
    JobFailed,
    JobMissing,
    JobPaused,
    JobRefused,
    LoopDetected,
    PlatformJob,
    StaleJob,
)
from relevo.jobs.model import Job, Lane, Recurrence
from relevo.jobs.querying.conditions import COMPLETED, LOCKED, READY, SUSPENDED, State, Status
from relevo.jobs.querying.query import JobQuery
from relevo.jobs.registry import JobDefinition
from relevo.jobs.running.context import JobContext
from relevo.jobs.schedules.service import Schedule, Schedules
from relevo.jobs.service import JobHandle, Jobs
from relevo.kernel.recurrence import describe as describe_rule
from relevo.kernel.recurrence import next_runs
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend

__all__ = [
    "COMPLETED",
    "LOCKED",
    "READY",
    "SUSPENDED",
    "BatchClosed",
    "BatchHandle",
    "BatchMissing",
    "BatchResult",
    "Fail",
    "Job",
    "JobBatch",
    "JobCanceled",
    "JobContext",
    "JobDefinition",
    "JobExplanation",
    "JobFailed",
    "JobHandle",
    "JobMissing",
    "JobPaused",
    "JobQuery",
    "JobRefused",
    "Jobs",
    "Lane",
    "LoopDetected",
    "PlatformJob",
    "Recurrence",
    "RetryLater",
    "Schedule",
    "Schedules",
    "StaleJob",
    "State",
    "Status",
    "Suspend",
    "Unique",
    "describe_rule",
    "next_runs",
]
