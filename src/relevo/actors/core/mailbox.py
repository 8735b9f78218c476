"""The mailbox of an activation: what waits for a turn, and what may begin now.

Turns are exclusive unless they only read: readers run beside readers. Interleaved work begins at
once. All else begins in the order of arrival, so no reader overtakes a writer. The bound counts
ordinary calls; ticks, completions and other control work always get in.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from relevo.errors import MailboxFull

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["write", "read", "interleave"]
Overflow = Literal["newest", "oldest"]


class Waiting(Protocol):
    """What waits in a mailbox."""

    mode: Mode
    is_control: bool
    is_queued: bool
    is_removed: bool
    """It was withdrawn, and is passed over."""


W = TypeVar("W", bound=Waiting)


class Mailbox(Generic[W]):
    """Work in the order in which it may begin; it knows what runs, since it gave it out."""

    def __init__(self, limit: int, overflow: Overflow = "newest") -> None:
        self._limit = limit
        self._overflow = overflow
        self._waiting: deque[W] = deque()
        self._interleaved: deque[W] = deque()
        self._writers = 0
        self._readers = 0
        self._interleaving = 0
        self.calls = 0
        """Ordinary calls that wait."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not (self.running or self._interleaved or self.head)

    @property
    def running(self) -> int:
        """Turns that have begun and not ended."""
        return self._writers + self._readers + self._interleaving

    @property
    def head(self) -> W | None:
        """What begins next, once it may."""
        while self._waiting and self._waiting[0].is_removed:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    @property
    def may_take(self) -> bool:
        """Whether something waits that may begin now, or was withdrawn."""
        return bool(self._interleaved) or (bool(self._waiting) and not self._writers)

    def queued(self) -> list[W]:
        """Return what waits, in order."""
        return [work for work in (*self._interleaved, *self._waiting) if not work.is_removed]

    def add(self, work: W, *, first: bool = False) -> W | None:
        """Let work wait; returns the oldest call if that had to make room.

        Raises `MailboxFull` if there is no room for a further call.
        """
        dropped = None
        if not work.is_control:
            if self.calls >= self._limit:
                dropped = self._oldest() if self._overflow == "oldest" else None
                if dropped is None:
                    raise MailboxFull(
                        f"{self.calls:,} calls wait for this actor, and no more may; try later"
                    )
                self.remove(dropped)
            self.calls += 1
        work.is_queued = True
        if work.mode == "interleave":
            self._interleaved.append(work)
        elif first:
            self._waiting.appendleft(work)
        else:
            self._waiting.append(work)
        return dropped

    def take(self) -> W | None:
        """Return work that begins now, or None; `ended` must follow."""
        while self._interleaved:
            work = self._interleaved.popleft()
            if not work.is_removed:
                self._interleaving += 1
                self._leave(work)
                return work
        head = self.head
        if head is None or self._writers or (head.mode == "write" and self._readers):
            return None
        self._waiting.popleft()
        if head.mode == "write":
            self._writers += 1
        else:
            self._readers += 1
        self._leave(head)
        return head

    def ended(self, work: W) -> None:
        """Note that a turn is over."""
        match work.mode:
            case "write":
                self._writers -= 1
            case "read":
                self._readers -= 1
            case "interleave":
                self._interleaving -= 1

    def remove(self, work: W) -> None:
        """Withdraw work that has not begun."""
        work.is_removed = True
        self._leave(work)

    def take_back(self, which: Callable[[W], bool] = lambda _: True) -> list[W]:
        """Take out what waits and is asked for, and return it in order."""
        left = [work for work in self.queued() if which(work)]
        for work in left:
            self._leave(work)
        gone = set(map(id, left))
        self._waiting = deque(work for work in self._waiting if id(work) not in gone)
        self._interleaved = deque(work for work in self._interleaved if id(work) not in gone)
        return left

    def _leave(self, work: W) -> None:
        if work.is_queued:
            work.is_queued = False
            if not work.is_control:
                self.calls -= 1

    def _oldest(self) -> W | None:
        return next((work for work in self.queued() if not work.is_control), None)
