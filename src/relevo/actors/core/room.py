"""Room for calls on a host: how many have arrived and are not answered, and their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.errors import MailboxFull
from relevo.limits import ACTOR_HOST_BYTES_MAX, ACTOR_HOST_CALLS_MAX

if TYPE_CHECKING:
    from relevo.actors.core.calls import Call


class CallRoom:
    """Counts the calls of a host."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0
        """Of their arguments."""

    def check(self, call: Call) -> None:
        """Raise `MailboxFull` if there is no room for a call.

        A turn of the actor may wait for a nested call, so that one always gets in.
        """
        if self.calls < ACTOR_HOST_CALLS_MAX and self.bytes < ACTOR_HOST_BYTES_MAX:
            return
        if any(frame.actor == call.actor for frame in call.chain.frames):
            return
        if self.calls >= ACTOR_HOST_CALLS_MAX:
            raise MailboxFull(f"{self.calls:,} calls wait on this host")
        raise MailboxFull(f"calls with {self.bytes:,} bytes wait on this host")

    def enter(self, call: Call) -> None:
        """Count a call that has arrived."""
        self.calls += 1
        self.bytes += len(call.body)

    def leave(self, call: Call) -> None:
        """Count it no longer: it is answered."""
        self.calls -= 1
        self.bytes -= len(call.body)
