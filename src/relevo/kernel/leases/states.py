"""The transition tables of hosts and leases, for the code and the documentation."""

from __future__ import annotations

from typing import Final, Literal

from relevo.kernel.machine import Machine, Transition

HostState = Literal["new", "live", "draining", "stopped", "lapsed", "superseded"]
"""Of a host as its process sees it; it may have several lives, with an incarnation each."""

HOST: Final = Machine(
    "host",
    initial="new",
    transitions=[
        Transition("new", "register", "live", "registers, for 10 s"),
        Transition("live", "renew", "live", "renews every 3 s"),
        Transition("live", "drain", "draining", "an operator asks it to hand over"),
        Transition("draining", "renew", "draining", "renews every 3 s"),
        Transition("draining", "resume", "live", "an operator lets it take leases again"),
        Transition("live", "lapse", "lapsed", "no renewal for 10 s, and somebody wrote it down"),
        Transition("draining", "lapse", "lapsed", "the same"),
        Transition("live", "supersede", "superseded", "a newer process took its name"),
        Transition("draining", "supersede", "superseded", "the same"),
        Transition("lapsed", "register", "live", "begins a new incarnation"),
        Transition("lapsed", "supersede", "superseded", "a namesake lives by now"),
        Transition("live", "stop", "stopped", "has given everything up"),
        Transition("draining", "stop", "stopped", "the same"),
        Transition("lapsed", "stop", "stopped", "stops before it comes back"),
        Transition("stopped", "register", "live", "starts again"),
    ],
)

LEASE: Final = Machine(
    "lease",
    initial="active",
    transitions=[
        Transition("active", "pause", "paused", "an operator pauses it"),
        Transition("active", "block", "blocked", "its owner gives up on it"),
        Transition("blocked", "pause", "paused", "an operator pauses it"),
        Transition("paused", "activate", "active", "resumed"),
        Transition("blocked", "activate", "active", "resumed by its name"),
    ],
)
"""Ownership is separate: only an active lease is given to a host."""

LEASE_EVENTS: Final = {"paused": "pause", "blocked": "block", "active": "activate"}
"""The events that lead a lease to a state."""
