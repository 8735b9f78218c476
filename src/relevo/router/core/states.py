"""The transition table of router jobs."""

from __future__ import annotations

from typing import Final

from relevo.kernel.machine import END, Machine, Transition

NEW: Final = "new"
"""The state before creation; the first request decides the status."""

FINISHED: Final = frozenset({"closed", "cancelled"})
CANCELABLE: Final = (
    "created",
    "pendingClassification",
    "classificationFailed",
    "pendingSchedule",
    "scheduled",
    "scheduleFailed",
    "waitingForActivation",
    "queued",
    "assigned",
)
DELETABLE: Final = ("closed", "cancelled", "classificationFailed", "scheduleFailed")

JOB: Final = Machine(
    "router job",
    initial=NEW,
    transitions=[
        Transition(NEW, "submit", "created"),
        Transition(NEW, "submitWithPolicy", "pendingClassification"),
        Transition(NEW, "submitWithSchedule", "pendingSchedule"),
        Transition("created", "enqueue", "queued"),
        Transition("created", "suspend", "waitingForActivation"),
        Transition("pendingClassification", "classified", "queued"),
        Transition("pendingClassification", "failed", "classificationFailed"),
        Transition("pendingClassification", "reclassify", "pendingClassification"),
        Transition("pendingSchedule", "scheduled", "scheduled"),
        Transition("pendingSchedule", "failed", "scheduleFailed"),
        Transition("scheduled", "due", "waitingForActivation"),
        *[
            transition
            for status in ("waitingForActivation", "scheduled")
            for transition in (
                Transition(status, "activate", "queued"),
                Transition(status, "activateWithPolicy", "pendingClassification"),
                Transition(status, "schedule", "pendingSchedule"),
            )
        ],
        Transition("scheduleFailed", "schedule", "pendingSchedule"),
        Transition("queued", "accept", "assigned"),
        Transition("assigned", "complete", "completed"),
        Transition("completed", "close", "closed"),
        Transition("assigned", "unassign", "queued"),
        Transition("assigned", "unassignAndSuspend", "waitingForActivation"),
        Transition("queued", "reclassify", "pendingClassification"),
        Transition("classificationFailed", "reclassify", "pendingClassification"),
        Transition("queued", "suspend", "waitingForActivation"),
        Transition("queued", "schedule", "pendingSchedule"),
        *[Transition(status, "cancel", "cancelled") for status in CANCELABLE],
        *[Transition(status, "delete", END) for status in DELETABLE],
    ],
)
"""The life of a job. `schedule` is another `scheduleAt`, allowed while the job is not queued, and a
queued job that is to wait for a time; a repeated `reclassify` supersedes the one that runs."""

STATUSES: Final = tuple(state for state in JOB.states if state != NEW)
