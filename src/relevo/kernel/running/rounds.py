"""Rounds: one statement settles finished runs and claims new work.

An answer may be lost; its claims are then looked up by their number. A settlement that
cannot be written is isolated, so that it does not hold up the rest. Claims that the database
attributes to this host, and this host does not know, are returned.
"""

from __future__ import annotations

import asyncio
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic

from relevo.kernel.running.ledger import Answer, C, S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence

    from relevo.kernel.running.lanes import HostLane
    from relevo.kernel.running.ledger import Ledger
    from relevo.kernel.running.runs import Run

SETTLE_ROWS_MAX: Final = 1_000
APART_ROWS: Final = 100
"""From how many rows on to settle and to claim is worth a statement each."""
SWEEP_SECONDS: Final = 5.0
"""How often a host looks for claims that it holds and does not know of."""


class Rounds(Generic[C, S]):
    """Settles a host's finished runs, claims new work, and passes on requests."""

    def __init__(
        self, ledger: Ledger[C, S], lanes: Mapping[str, HostLane[C]],
        runs: Mapping[Hashable, Run[C, S]], numbers: Iterator[int], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._lanes = lanes
        self._runs = runs
        self._numbers = numbers
        """Numbers of claims; a life uses none twice."""
        self._wake = wake
        """Called when a budget has permits for a lane that wanted some."""
        self._begun = False
        self._swept_at = time.monotonic()
        self._strangers: set[tuple[Hashable, int]] = set()
        self._rows_max = SETTLE_ROWS_MAX
        self._unheard: list[int] = []
        """Numbers of claims whose answer was lost, to be looked up."""
        self._unheard_permits: dict[str, int] = {}
        """Permits that claims with lost answers may need, by lane."""
        self.stopping = False
        """Whether nothing more is to be claimed."""
        self.finished: list[S] = []
        """Runs to be settled."""

    def heed(self, settlement: S) -> None:
        """Return the claims that the ledger names after an unsuccessful run."""
        if (refused := self._ledger.ended(settlement)) is not None:
            self.give_back(refused)

    async def next(self) -> bool:
        """Settle and claim; whether there is reason to do so again at once."""
        if not self._begun:
            await self._return_left_over()
        if self._unheard:
            await self._adopt()
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            await self._sweep()
        ledger = self._ledger
        await ledger.prepare(self)
        now = time.monotonic()
        for lane in self._lanes.values():
            self.finished += map(ledger.returned, lane.late(now, stopping=self.stopping))
        size = self._rows_to_settle()
        batch, self.finished = self.finished[:size], self.finished[size:]
        claims = not (self.stopping or ledger.keeps_others_away)
        rooms = await self._with_permits(self._rooms() if claims else {})
        try:
            await self._settle_and_claim(batch, rooms)
        finally:
            for lane in self._lanes.values():
                if lane.waiting:  # they begin while the next statements are on their way
                    lane.came.set()
        if ledger.keeps_others_away:
            return ledger.goes_on(self)
        return any(self._lanes[name].more for name in self._rooms() if name in rooms)

    def due_arguments(self) -> Sequence[Any]:
        """Return the arguments of the ledger's question whether there is anything to do."""
        claims = not (self.stopping or self._ledger.keeps_others_away)
        return self._ledger.due_arguments(self._rooms() if claims else {}, vacant=self.vacant)

    @property
    def looks_often(self) -> bool:
        """Whether time alone may give it something to do that the ledger's question leaves out."""
        lanes = self._lanes.values()
        return bool(
            not self._begun or self._unheard or self._strangers or self._ledger.looks_often
            or any(lane.waiting or lane.budget is not None for lane in lanes)
        )  # fmt: skip

    def _rows_to_settle(self) -> int:
        """How many; without those of a claim that is not finished yet, if there are many others:
        what was claimed together may be stored together, which costs least as a whole."""
        size = min(len(self.finished), self._rows_max)
        last = self.finished[size - 1].claim.number if size > APART_ROWS else 0
        if any(lane.waiting and lane.waiting[0].number == last for lane in self._lanes.values()):
            whole = size
            while whole and self.finished[whole - 1].claim.number == last:
                whole -= 1
            return whole if whole >= APART_ROWS else size
        return size

    async def _settle_and_claim(self, batch: Sequence[S], rooms: dict[str, int]) -> None:
        """One statement does both. Where there is much of both, several do it at the same time:
        none waits for the others, claims alone wait for no disk, and few failures do not make the
        settlement of many successes dear."""
        if min(len(batch), sum(rooms.values())) < APART_ROWS:
            await self._work(batch, rooms)
            return
        plain, rest = list[S](), list[S]()
        for one in batch:
            (plain if self._ledger.is_plain(one) else rest).append(one)
        parts = [self._work(part, {}) for part in (plain, rest) if part]
        ends = await asyncio.gather(self._work([], rooms), *parts, return_exceptions=True)
        for error in filter(None, ends):
            raise error

    async def _work(self, batch: Sequence[S], rooms: dict[str, int]) -> None:
        number, ledger = next(self._numbers), self._ledger
        try:
            rows = await ledger.work(number, batch, rooms, vacant=not batch and self.vacant)
        except BaseException:
            self.finished[:0] = batch  # written again, or found stale
            self._unhear(number, rooms)
            raise
        if batch:
            self._rows_max = min(SETTLE_ROWS_MAX, self._rows_max * 2)
            ledger.settled(batch)
        try:
            answer = ledger.read(rows, rooms)
            self._return_excess(answer, rooms)
            self._receive(answer)
        except BaseException:
            self._unhear(number, rooms)
            raise
        ledger.not_asked(self._runs, answer.asked)
        for name, room in rooms.items():  # what is stored together may not have fit
            self._lanes[name].more = 2 * len(answer.claims.get(name, ())) >= room

    async def claim_one(
        self, statement: Callable[[int, Sequence[str]], Awaitable[Sequence[C]]]
    ) -> None:
        """Claim at most one by a statement of the ledger's own.

        It gets the number of the claim, and the lanes that have room and a permit.
        """
        rooms = {name: 1 for name, lane in self._lanes.items() if lane.free}
        number, rooms = next(self._numbers), await self._with_permits(rooms, ahead=False)
        try:
            claims = await statement(number, list(rooms))
        except BaseException:
            self._unhear(number, rooms)
            raise
        by_lane: dict[str, list[C]] = {}
        for claim in claims:
            by_lane.setdefault(claim.lane, []).append(claim)
        answer = Answer(by_lane, {})
        self._return_excess(answer, rooms)
        for name, claimed in answer.claims.items():
            self._lanes[name].waiting += claimed

    async def _with_permits(self, rooms: dict[str, int], *, ahead: bool = True) -> dict[str, int]:
        """Take permits for lanes with a budget; without one nothing is claimed for them."""
        budgets = {name: lane.budget for name, lane in self._lanes.items() if lane.budget}
        looks = [
            name for name in rooms
            if name in budgets and budgets[name].must_look(self._lanes[name].held)
        ]  # fmt: skip
        if looks:
            for name in await self._ledger.waiting(looks):
                budgets[name].work_waits = True
        found = dict(rooms)
        for name in budgets:
            room = rooms.get(name, 0)
            found[name] = self._lanes[name].take_permits(room, self._wake, ahead=ahead)
            if not found[name]:
                del found[name]
        return found

    def _unhear(self, number: int, rooms: Mapping[str, int]) -> None:
        """The answer of a claim was lost: what it brought is looked up, with its permits."""
        self._unheard.append(number)
        for name, room in rooms.items():
            if self._lanes[name].budget is not None:
                self._unheard_permits[name] = self._unheard_permits.get(name, 0) + room

    def _return_excess(self, answer: Answer[C], permits: Mapping[str, int]) -> None:
        """Give back the permits that an answer did not need, and claims beyond the permits."""
        for name in {*permits, *answer.claims}:
            lane = self._lanes[name]
            if lane.budget is None:
                continue
            claims, taken = answer.claims.get(name, []), permits.get(name, 0)
            lane.budget.note(taken, len(claims), lane.held)
            self.finished += map(self._ledger.returned, claims[taken:])
            del claims[taken:]

    async def _return_left_over(self) -> None:
        """Return the claims of a runner of this life that was cut off."""
        self.finished += map(self._ledger.returned, await self._ledger.held(None))
        self._begun = True

    def isolate(self, error: Exception) -> None:
        """Settle fewer at a time, so that one that cannot be written does not hold up the rest."""
        if self._rows_max > 1 or not self.finished:
            self._rows_max = max(1, min(self._rows_max, len(self.finished)) // 2)
            return
        text = f"what became of the run could not be stored: {error!r}"
        self.finished[0] = self._ledger.broken(self.finished[0].claim, text)
        self._rows_max = SETTLE_ROWS_MAX

    def _rooms(self) -> dict[str, int]:
        found = {}
        for name, lane in self._lanes.items():
            if lane.is_open and (room := lane.room()):
                found[name] = room
        return found

    def _receive(self, answer: Answer[C]) -> None:
        for id_, what in answer.asked.items():
            self._ask(id_, what)
        for name, claims in answer.claims.items():
            lane = self._lanes[name]
            lane.appetite.weigh(len(claims), answer.sizes[name])
            lane.waiting += claims
        if answer.refused is not None:
            self.give_back(answer.refused)

    def give_back(self, wanted: Callable[[C], bool]) -> None:
        """Return claims that have not begun."""
        for lane in self._lanes.values():
            self.finished += map(self._ledger.returned, lane.take_all(wanted))

    def _ask(self, id_: Hashable, what: Any) -> None:
        """Pass a request on to a running handler."""
        if (run := self._runs.get(id_)) is not None:
            self._ledger.ask(run, what)
            return
        # Not begun: it is returned, and the request takes effect at once.
        taken = (lane.take(id_) for lane in self._lanes.values())
        self.finished += [self._ledger.returned(one) for one in taken if one is not None]

    async def _sweep(self) -> None:
        """Return claims that the database attributes to this host, and this host does not know.

        An answer that was lost, or a run that was cut off: seen twice, it is not under way either.
        """
        self._swept_at = time.monotonic()
        keys, known = await self._ledger.held_keys(), self._known()
        strangers = {(id_, number) for id_, number in keys if id_ not in known}
        if orphans := strangers & self._strangers:
            found = await self._ledger.held(sorted({number for _, number in orphans}))
            self.finished += [
                self._ledger.returned(one) for one in found if (one.id, one.number) in orphans
            ]
        self._strangers = strangers - orphans

    async def _adopt(self) -> None:
        """Look up the claims of statements whose answer was lost."""
        claims = await self._ledger.held(self._unheard)
        self._unheard.clear()
        known, permits = self._known(), self._unheard_permits
        self._unheard_permits = {}
        answer = self._ledger.adopted([claim for claim in claims if claim.id not in known])
        self._return_excess(answer, permits)
        self._receive(answer)

    @property
    def vacant(self) -> bool:
        """Whether nothing is in hand."""
        return not (
            self._runs or self.finished or any(lane.waiting for lane in self._lanes.values())
        )

    def holds(self, id_: Hashable) -> bool:
        """Whether a claim waits, runs, or is to be settled."""
        return id_ in self._known()

    def in_hand(self) -> Iterator[C]:
        """Yield the claims that wait or run."""
        for lane in self._lanes.values():
            yield from lane.waiting
        for run in self._runs.values():
            yield run.claim

    def runs_of(self, lane: str) -> list[Run[C, S]]:
        """Return the runs of a lane."""
        return [run for run in self._runs.values() if run.claim.lane == lane]

    def _known(self) -> set[Hashable]:
        """Keys of claims that wait, run, or are to be settled."""
        claims = chain(self.in_hand(), (one.claim for one in self.finished))
        return {id_ for claim in claims for id_ in claim.ids}
