"""Windows of calls and of bytes: what a peer may send before the receiver grants more. Pure.

The receiver grants a call's share again when it has taken the call in, so a slow actor never stops
the calls of others: mailboxes have bounds of their own. Control frames and answers need no credit.
"""

from __future__ import annotations

from msgspec import Struct

from relevo import limits
from relevo.actors.transport.errors import BadFrame


class Window(Struct, frozen=True):
    """So many calls, with so many bytes in all, may be on their way."""

    calls: int = limits.ACTOR_WINDOW_CALLS
    bytes: int = limits.ACTOR_WINDOW_BYTES


class SendCredit:
    """The sender's view: what it may send at this moment."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.calls = window.calls
        self.bytes = window.bytes

    def take(self, size: int) -> bool:
        """Use credit for a call of a size; False, and nothing used, if there is too little."""
        if self.calls < 1 or self.bytes < size:
            return False
        self.calls -= 1
        self.bytes -= size
        return True

    def give_back(self, size: int) -> None:
        """Take back the credit of a call that was not sent after all."""
        self.grant(1, size)

    def grant(self, calls: int, size: int) -> None:
        """Add credit; raises `BadFrame` if it would exceed the window."""
        if self.calls + calls > self.window.calls or self.bytes + size > self.window.bytes:
            raise BadFrame(
                f"a peer grants {calls} calls and {size} bytes more than were used of its window"
            )
        self.calls += calls
        self.bytes += size


class ReceiveCredit:
    """The receiver's view: what the peer may still send, and what is to be granted anew."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._calls = window.calls
        self._bytes = window.bytes
        self.owed_calls = 0
        self.owed_bytes = 0

    def receive(self, size: int) -> None:
        """Count a call that arrives; raises `BadFrame` if the peer had no credit for it."""
        if self._calls < 1 or self._bytes < size:
            raise BadFrame(
                f"a call of {size} bytes without credit: {self._calls} calls and {self._bytes}"
                " bytes were left"
            )
        self._calls -= 1
        self._bytes -= size

    def admit(self, size: int) -> None:
        """A call that arrived is taken in: its share may be granted again."""
        self.owed_calls += 1
        self.owed_bytes += size

    @property
    def is_due(self) -> bool:
        """Whether so much is owed that the peer should hear of it at once."""
        return self.owed_calls * 2 >= self.window.calls or self.owed_bytes * 2 >= self.window.bytes

    def grant(self) -> tuple[int, int]:
        """Return what is owed, which the peer may use from now on."""
        granted = self.owed_calls, self.owed_bytes
        self._calls += granted[0]
        self._bytes += granted[1]
        self.owed_calls = self.owed_bytes = 0
        return granted
