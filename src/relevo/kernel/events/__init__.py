"""The event log: events for users, appended in the transaction that causes them.

    async with database.transaction() as tx:
        ...
        await events.append(tx, [Event("relevo.job.completed", "job/7", 3, Completed(attempts=1))])
    events.sent()

Types are registered in a catalogue; readers see every committed event once in each stripe's order,
for as long as the log is kept.
"""

from relevo.kernel.events.appending import append
from relevo.kernel.events.catalogue import Catalogue, EventType
from relevo.kernel.events.log import EventLog, EventLogPart
from relevo.kernel.events.model import Event, EventPage, EventRow, LogState, Recorded, Stripe

__all__ = [
    "Catalogue",
    "Event",
    "EventLog",
    "EventLogPart",
    "EventPage",
    "EventRow",
    "EventType",
    "LogState",
    "Recorded",
    "Stripe",
    "append",
]
