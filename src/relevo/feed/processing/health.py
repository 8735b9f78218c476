"""Whether a processor does its work on this host, and if not, why (11). Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["ok", "degraded", "failed"]
Symptom = Literal["failing", "stalled", "blocked", "store", "unreadable"]
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
        self._found: dict[tuple[str, Symptom, int], str] = {}
        self.abandoned = 0
        """Calls that were left to themselves since the process started."""

    def note(self, symptom: Symptom, token: str, text: str, lane: int = 0) -> None:
        """Something is wrong with a lease, or with one lane of it."""
        self._found[token, symptom, lane] = text

    def clear(self, token: str, *symptoms: Symptom, lane: int | None = None) -> None:
        """It is over, in one lane or in all."""
        if not self._found:
            return
        for key in list(self._found):
            if key[0] == token and key[1] in symptoms and lane in (None, key[2]):
                del self._found[key]

    def judge(self, *, running: bool, may_act: bool, why: str | None = None) -> ProcessorHealth:
        """Put it together: failed if this host does nothing, degraded if it does not do all."""
        fatal = []
        if not running:
            told = "" if why is None else f": {why}"
            fatal.append(f"the processor is not running{told}")
        elif not may_act:
            fatal.append("this host is past its self-fencing deadline: no renewal succeeded")
        if self.abandoned >= ABANDONED_MAX:
            fatal.append(f"{self.abandoned} calls of the handler never ended; restart the process")
        reasons = [f"lease {token}: {text}" for (token, *_), text in sorted(self._found.items())]
        if self.abandoned and not fatal:
            reasons.append(f"{self.abandoned} calls of the handler never ended")
        state: State = "failed" if fatal else "degraded" if reasons else "ok"
        return ProcessorHealth(state, (*fatal, *reasons))
