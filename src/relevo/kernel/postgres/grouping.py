"""Single calls ride in groups.

A call joins the group being collected and returns when that group has committed. While one
statement is on its way the next group gathers; there is no artificial delay, so an idle system
answers at once and a busy one batches. The code here knows nothing of SQL: a group is a function
from calls to results, one statement and one commit.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from relevo import limits
from relevo.errors import Closed, InternalError, OutcomeUnknown, Unavailable
from relevo.kernel import uses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from relevo.kernel.telemetry.metrics import Metrics

C = TypeVar("C")
R = TypeVar("R")


class _Waiting(Struct, Generic[C, R], gc=False):  # it lies on no cycle; there are thousands
    call: C
    key: Hashable
    order: Hashable
    answer: asyncio.Future[R]


class Group(Generic[C, R]):
    """Turns concurrent single calls into set-based statements.

    `statement` gets the calls of one group and returns as many results, in their order. An expected
    refusal (a conflict, a stale fence) is an exception *returned* in the place of its row. Only an
    exception it *raises* makes the group split, until the row at fault stands alone; so one bad row
    never fails its neighbours. `Unavailable` and `OutcomeUnknown` are no row's fault and go to all.

    `key` names what a call touches: two calls on one key go in successive statements, in order.
    `lane` spreads calls over `lanes` statements under way at once; order holds within a lane.
    With `overlapping` no group waits for the one before: what is called at the same time goes
    together, for statements that answer late and whose other end keeps the order of their arrival.

    >>> group = Group("double", double_all)  # doctest: +SKIP
    >>> await group.call(21)  # doctest: +SKIP
    42
    """

    def __init__(
        self,
        name: str,
        statement: Callable[[Sequence[C]], Awaitable[Sequence[R | Exception]]],
        *,
        key: Callable[[C], Hashable] | None = None,
        lane: Callable[[C], Hashable] | None = None,
        lanes: int = 1,
        overlapping: bool = False,
        calls_max: int = limits.GROUP_CALLS_MAX,
        waiting_max: int = limits.GROUP_WAITING_MAX,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.calls = 0
        self.statements = 0
        self._counts = None if metrics is None else metrics.statements.of(name)
        self._key = key
        self._lane = lane
        self._lanes = [
            _GroupLane(
                self,
                statement,
                keyed=key is not None,
                overlapping=overlapping,
                calls_max=calls_max,
                waiting_max=waiting_max,
            )
            for _ in range(lanes)
        ]
        self._closing = False

    async def call(self, call: C, *, order: Hashable = None) -> R:
        """Return this call's own result, or raise its own error.

        Calls that share an `order` take effect in the order they were made, also when the caller
        does not await one before making the next. Waits while too much is waiting already.
        A caller that is canceled while it waits has changed nothing; once its group is on the way
        its row is applied whole or not at all, like its neighbours'.
        """
        return await self.put(call, order=order)

    def put(self, call: C, *, order: Hashable = None) -> asyncio.Future[R]:
        """Make a call without waiting; the future is what `call` returns or raises."""
        if self._closing:
            raise Closed(f"{self.name} is closing and takes no further calls")
        lane = self._lanes[0]
        if self._lane is not None:
            lane = self._lanes[hash(self._lane(call)) % len(self._lanes)]
        key = None
        if self._key is not None:
            key = self._key(call)
            hash((key, order))  # one that cannot be hashed must fail here, not in the group
        return lane.add(call, key, order)

    @property
    def waiting(self) -> int:
        """Calls that were accepted and are not on their way yet; at most `waiting_max` a lane."""
        return sum(lane.waiting for lane in self._lanes)

    def count(self, calls: int) -> None:
        """Note one statement that carried so many calls."""
        self.calls += calls
        self.statements += 1
        if self._counts is not None:
            self._counts.calls += calls
            self._counts.statements += 1

    async def close(self) -> None:
        """Finish every call that was accepted; refuse new ones."""
        self._closing = True
        for lane in self._lanes:
            await lane.drain()


class _GroupLane(Generic[C, R]):
    """Runs one statement at a time; calls that arrive meanwhile form the next group."""

    def __init__(
        self,
        group: Group[C, R],
        statement: Callable[[Sequence[C]], Awaitable[Sequence[R | Exception]]],
        *,
        keyed: bool,
        overlapping: bool,
        calls_max: int,
        waiting_max: int,
    ) -> None:
        self._group = group
        self._statement = statement
        self._keyed = keyed
        self._overlapping = overlapping
        self._under_way: set[asyncio.Task[None]] = set()
        """Overlapping groups that are not answered."""
        self._calls_max = calls_max
        self._waiting_max = waiting_max
        self._waiting: deque[_Waiting[C, R]] = deque()
        self._outside: deque[_Waiting[C, R]] = deque()
        """Calls for which there is no room yet: the back-pressure of a group."""
        self._loop: asyncio.AbstractEventLoop
        self._pump: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Calls accepted and not on their way yet."""
        return len(self._waiting)

    def add(self, call: C, key: Hashable, order: Hashable) -> asyncio.Future[R]:
        """Join the group being collected, or wait for room behind earlier calls."""
        if self._pump is None or self._pump.done():
            self._loop = asyncio.get_running_loop()  # a system call, so not for each of many
            self._pump = self._loop.create_task(self._run(), name=f"group {self._group.name}")
        answer: asyncio.Future[R] = self._loop.create_future()
        full = self._outside or len(self._waiting) >= self._waiting_max
        (self._outside if full else self._waiting).append(_Waiting(call, key, order, answer))
        return answer

    async def drain(self) -> None:
        """Wait until nothing waits and nothing is under way."""
        _fail(self._outside, Closed(f"{self._group.name} closed before there was room"))
        self._outside.clear()
        if self._pump is not None and not self._pump.done():
            await asyncio.wait([self._pump])
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._cut_off()  # if the task was canceled before it could begin

    async def _run(self) -> None:
        uses.begin("groups")  # independent of the first caller and its connections
        try:
            while self._waiting:
                wave = self._collect()
                self._let_in()
                if wave and self._overlapping:
                    sending = self._loop.create_task(self._send(wave))
                    self._under_way.add(sending)
                    sending.add_done_callback(self._under_way.discard)
                elif wave:
                    await self._send(wave)
        finally:
            self._cut_off()

    def _cut_off(self) -> None:
        if left := (*self._waiting, *self._outside):
            _fail(left, Closed(f"{self._group.name} was cut off"))
        self._waiting.clear()
        self._outside.clear()

    def _let_in(self) -> None:
        while self._outside and len(self._waiting) < self._waiting_max:
            self._waiting.append(self._outside.popleft())

    def _collect(self) -> list[_Waiting[C, R]]:
        """Take the next wave: in order, each key once, none past a call of the same order.

        Calls held back stay at the head. How far it looks past them is bounded, so that ten
        thousand calls on one key do not cost a scan each.
        """
        wave: list[_Waiting[C, R]] = []
        held: list[_Waiting[C, R]] = []
        keys: set[Hashable] = set()
        orders: set[Hashable] = set()
        while self._waiting and len(wave) < self._calls_max and len(held) < 2 * self._calls_max:
            entry = self._waiting.popleft()
            if entry.answer.done():
                continue  # its caller was canceled before it was sent
            if not self._keyed:
                wave.append(entry)
                continue
            if entry.key in keys or entry.order in orders:
                held.append(entry)
                if entry.order is not None:
                    orders.add(entry.order)
            else:
                wave.append(entry)
            keys.add(entry.key)
        self._waiting.extendleft(reversed(held))
        return wave

    async def _send(self, wave: list[_Waiting[C, R]]) -> None:
        """Run one statement for the wave; split it when a row makes the statement fail."""
        parts, part = [wave], wave
        try:
            while parts:
                part = parts.pop()
                error = await self._try(part)
                if isinstance(error, Unavailable):
                    _fail([entry for one in (part, *parts) for entry in one], error)
                    return
                if error is None:
                    continue
                if len(part) == 1 or isinstance(error, OutcomeUnknown):
                    _fail(part, error)
                    continue
                middle = len(part) // 2
                parts += part[middle:], part[:middle]
        except BaseException:
            _fail(part, OutcomeUnknown(f"{self._group.name} was cut off during a commit"))
            _fail(
                [entry for one in parts for entry in one], Closed(f"{self._group.name} was cut off")
            )
            raise

    async def _try(self, part: list[_Waiting[C, R]]) -> Exception | None:
        """Answer every caller of `part`, or return the error of its statement."""
        self._group.count(len(part))
        try:
            results = await self._statement([entry.call for entry in part])
        except Exception as error:  # any error belongs to a caller
            return error
        if len(results) != len(part):
            fault = f"{self._group.name} answered {len(results)} results to {len(part)} calls"
            _fail(part, InternalError(fault))
            return None
        if self._waiting:
            # The next statement is sent first, so that the server works while callers do.
            self._loop.call_soon(_answer, part, results)
        else:
            _answer(part, results)
        return None


def _answer(part: Sequence[_Waiting[Any, R]], results: Sequence[R | Exception]) -> None:
    for entry, result in zip(part, results, strict=True):
        if entry.answer.done():
            continue  # its caller was canceled
        if isinstance(result, Exception):
            entry.answer.set_exception(result)
        else:
            entry.answer.set_result(result)


def _fail(entries: Collection[_Waiting[Any, Any]], error: Exception) -> None:
    """Give each of several callers its own copy, so that tracebacks do not grow into each other."""
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_exception(error if len(entries) == 1 else own_copy(error))


def own_copy(error: Exception) -> Exception:
    """Return an error for one of several callers that share it."""
    try:
        own = copy.copy(error)
    except Exception:  # an exception that cannot be made from its `args`
        return error
    own.__cause__ = error.__cause__
    return own
