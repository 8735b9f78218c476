"""The life of an activation, as a table."""

from __future__ import annotations

from typing import Literal

from relevo.kernel.machine import Machine, Transition

ActivationState = Literal["loading", "activating", "active", "deactivating", "gone"]
DeactivationReason = Literal[
    "idle", "drain", "shutdown", "pressure", "requested", "deleted", "lost"
]

ACTIVATION = Machine(
    "activation",
    initial="loading",
    transitions=[
        Transition("loading", "loaded", "activating"),
        Transition("loading", "fail", "gone", "the state cannot be read"),
        Transition("loading", "lose", "gone"),
        Transition("activating", "activated", "active"),
        Transition("activating", "fail", "gone", "on_activate raised"),
        Transition("activating", "lose", "gone"),
        Transition("active", "deactivate", "deactivating"),
        Transition("active", "lose", "gone", "the slot was lost, or a commit failed"),
        Transition("deactivating", "deactivated", "gone"),
        Transition("deactivating", "lose", "gone"),
    ],
)
