"""Whether a processor does its work on this host, and if not, why (11). Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["ok", "degraded", "failed"]
Symptom = Literal["failing", "stalled", "blocked", "store"]
ABANDONED_MAX = 8
"""So many calls that never ended mean that the process itself needs an end."""


class ProcessorHealth(Struct, frozen=True):
    """What `processor.health()` says."""

    state: State
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is nothing to say."""
        return self.state == "ok"


class Stall(Struct, frozen=True, kw_only=True):
    """A call that takes longer than `stall_after`."""

    seconds: float
    first: str
    """Id of the first change of the call."""
    changes: int


class Symptoms:
    """What is wrong with which lease at present."""

    def __init__(self) -> None:
        self._found: dict[tuple[Symptom, str], str] = {}
        self.abandoned = 0
        """Calls that were left to themselves since the process started."""

    def note(self, symptom: Symptom, token: str, text: str) -> None:
        """Something is wrong with a lease."""
        self._found[symptom, token] = text

    def clear(self, token: str, *symptoms: Symptom) -> None:
        """It is over."""
        for symptom in symptoms:
            self._found.pop((symptom, token), None)

    def judge(self, *, running: bool, may_act: bool) -> ProcessorHealth:
        """Put it together: failed if this host does nothing, degraded if it does not do all."""
        fatal = []
        if not running:
            fatal.append("the processor is not running")
        elif not may_act:
            fatal.append("this host is past its self-fencing deadline: no renewal succeeded")
        if self.abandoned >= ABANDONED_MAX:
            fatal.append(f"{self.abandoned} calls of the handler never ended; restart the process")
        reasons = [f"lease {token}: {text}" for (_, token), text in sorted(self._found.items())]
        if self.abandoned and not fatal:
            reasons.append(f"{self.abandoned} calls of the handler never ended")
        state: State = "failed" if fatal else "degraded" if reasons else "ok"
        return ProcessorHealth(state, (*fatal, *reasons))
