"""Relevo gets every piece of work to whoever should do it.

app = relevo.App()              # embedded PostgreSQL; or App("postgresql://…")
async with app.host():          # connect, migrate, serve
    await app.until_signal()
"""

from relevo.app import App, Health
from relevo.errors import (
    Conflict,
    DatabaseUnavailable,
    HostFenced,
    HostSuperseded,
    InvalidValue,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    RelevoError,
    SettingsError,
)
from relevo.jobs import (
    Fail,
    Job,
    JobCanceled,
    JobContext,
    JobDefinition,
    JobFailed,
    JobHandle,
    JobPaused,
    Lane,
    Recurrence,
    RetryLater,
    Suspend,
)
from relevo.kernel.leases.model import LeaseConfig
from relevo.settings import Settings

__all__ = [
    "App",
    "Conflict",
    "DatabaseUnavailable",
    "Fail",
    "Health",
    "HostFenced",
    "HostSuperseded",
    "InvalidValue",
    "Job",
    "JobCanceled",
    "JobContext",
    "JobDefinition",
    "JobFailed",
    "JobHandle",
    "JobPaused",
    "Lane",
    "LeaseConfig",
    "LeaseLost",
    "NotFound",
    "OutcomeUnknown",
    "Recurrence",
    "RelevoError",
    "RetryLater",
    "Settings",
    "SettingsError",
    "Suspend",
]
