"""Single calls ride in groups (DESIGN D4).

A call joins the group being collected and returns when that group has committed. While one
statement is on its way the next group gathers; there is no artificial delay, so an idle system
answers at once and a busy one batches. The code here knows nothing of SQL: a group is a function
from calls to results, one statement and one commit.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from relevo import limits
from relevo.errors import Closed, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from relevo.telemetry.metrics import Metrics

C = TypeVar("C")
R = TypeVar("R")


class _Waiting(Generic[C, R]):
    __slots__ = ("answer", "call", "key", "order")

    def __init__(self, call: C, key: Hashable, order: Hashable, answer: asyncio.Future[R]) -> None:
        self.call = call
        self.key = key
        self.order = order
        self.answer = answer


class Group(Generic[C, R]):
    """Turns concurrent single calls into set-based statements.

    `statement` gets the calls of one group and returns as many results, in their order. An expected
    refusal (a conflict, a stale fence) is an exception *returned* in the place of its row. Only an
    exception it *raises* makes the group split, until the row at fault stands alone; so one bad row
    never fails its neighbours. `Unavailable` and `OutcomeUnknown` are nobody's fault and go to all.

    `key` names what a call touches: two calls on one key go in successive statements, in order.
    `lane` spreads calls over `lanes` statements under way at once; order holds within a lane.

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
        calls_max: int = limits.GROUP_CALLS_MAX,
        waiting_max: int = limits.GROUP_WAITING_MAX,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.calls = 0
        self.statements = 0
        self._metrics = metrics
        self._key = key
        self._lane = lane
        self._lanes = [
            _Lane(
                self, statement, keyed=key is not None, calls_max=calls_max, waiting_max=waiting_max
            )
            for _ in range(lanes)
        ]
        self._closing = False

    async def call(self, call: C, *, order: Hashable = None) -> R:
        """Return this call's own result, or raise its own error.

        Calls that share an `order` take effect in the order they were made, also when the caller
        does not await one before making the next. Waits while too much is waiting already.
        A caller that is cancelled while it waits has changed nothing; once its group is on the way
        its row is applied whole or not at all, like its neighbours'.
        """
        lane = self._lanes[0]
        if self._lane is not None:
            lane = self._lanes[hash(self._lane(call)) % len(self._lanes)]
        if lane.full:
            await lane.room()
        if self._closing:
            raise Closed(f"{self.name} is closing and takes no further calls")
        return await lane.add(call, self._key(call) if self._key else None, order)

    def count(self, calls: int) -> None:
        """Note one statement that carried so many calls."""
        self.calls += calls
        self.statements += 1
        if self._metrics is not None:
            self._metrics.group_calls.labels(group=self.name).inc(calls)
            self._metrics.group_statements.labels(group=self.name).inc()

    async def close(self) -> None:
        """Finish every call that was accepted; refuse new ones."""
        self._closing = True
        for lane in self._lanes:
            await lane.drain()


class _Lane(Generic[C, R]):
    """One statement at a time; what arrives meanwhile is the next group."""

    def __init__(
        self,
        group: Group[C, R],
        statement: Callable[[Sequence[C]], Awaitable[Sequence[R | Exception]]],
        *,
        keyed: bool,
        calls_max: int,
        waiting_max: int,
    ) -> None:
        self._group = group
        self._statement = statement
        self._keyed = keyed
        self._calls_max = calls_max
        self._waiting_max = waiting_max
        self._waiting: deque[_Waiting[C, R]] = deque()
        self._asking: deque[asyncio.Future[None]] = deque()
        self._pump: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether a caller must wait for room; those who already wait come first."""
        return len(self._waiting) >= self._waiting_max or bool(self._asking)

    async def room(self) -> None:
        """Wait for one's turn to join; the back-pressure of a group."""
        ask = asyncio.get_running_loop().create_future()
        self._asking.append(ask)
        try:
            await ask
        except asyncio.CancelledError:
            if ask.done() and not ask.cancelled():
                self._make_room()  # it was our turn; give it to the next
            raise

    def add(self, call: C, key: Hashable, order: Hashable) -> asyncio.Future[R]:
        """Join the group being collected."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._waiting.append(_Waiting(call, key, order, answer))
        if self._pump is None:
            self._pump = loop.create_task(self._run(), name=f"group {self._group.name}")
        return answer

    async def drain(self) -> None:
        """Wait until nothing waits and nothing is under way."""
        for ask in self._asking:
            if not ask.done():
                ask.set_result(None)  # it finds the group closing
        self._asking.clear()
        while self._pump is not None:
            await asyncio.shield(self._pump)

    async def _run(self) -> None:
        try:
            while self._waiting:
                wave = self._collect()
                self._make_room()
                if wave:
                    await self._send(wave)
        finally:
            self._pump = None
            self._fail(self._waiting, Closed(f"{self._group.name} was cut off"))
            self._waiting.clear()

    def _make_room(self) -> None:
        space = self._waiting_max - len(self._waiting)
        while self._asking and space > 0:
            ask = self._asking.popleft()
            if not ask.done():
                ask.set_result(None)
                space -= 1

    def _collect(self) -> list[_Waiting[C, R]]:
        """Take the next wave: in order, each key once, nobody past a call of the same order.

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
                continue  # its caller was cancelled before it was sent
            if self._keyed and (entry.key in keys or entry.order in orders):
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
        self._group.count(len(wave))
        try:
            results = await self._statement([entry.call for entry in wave])
        except (Unavailable, OutcomeUnknown) as error:
            self._fail(wave, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to a caller
            if len(wave) == 1:
                self._fail(wave, error)
                return
            middle = len(wave) // 2
            await self._send(wave[:middle])
            await self._send(wave[middle:])
        except BaseException:
            self._fail(wave, OutcomeUnknown(f"{self._group.name} was cut off during a commit"))
            raise
        else:
            self._settle(wave, results)

    def _settle(self, wave: list[_Waiting[C, R]], results: Sequence[R | Exception]) -> None:
        if len(results) != len(wave):
            fault = AssertionError(
                f"{self._group.name} answered {len(results)} results to {len(wave)} calls"
            )
            self._fail(wave, fault)
            return
        for entry, result in zip(wave, results, strict=True):
            if entry.answer.done():
                continue
            if isinstance(result, Exception):
                entry.answer.set_exception(result)
            else:
                entry.answer.set_result(result)

    @staticmethod
    def _fail(wave: Any, error: Exception) -> None:
        """Give every caller its own copy, so that tracebacks do not grow into each other."""
        for entry in wave:
            if not entry.answer.done():
                own = copy.copy(error)
                own.__cause__ = error.__cause__
                entry.answer.set_exception(own)
