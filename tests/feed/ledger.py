"""What was written, what was delivered, and whether the one follows from the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from relevo.feed.model import Mode
from relevo.testing.trace import OwnerChange, Violation, check_invariants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.feed import FeedContainer
    from relevo.kernel.postgres import Database

GRACE_SECONDS = 1.0
"""So long after its trouble ended a host may still take the step that the trouble interrupted."""

CRASHES_ISOLATE = 2
"""After so many losses without release a lease delivers its changes one by one."""

POSITIONS = """
create table relevo_trace.position (
  seq bigint generated always as identity primary key,
  lease_id integer, epoch bigint, position jsonb
);
create function relevo_trace.note_position() returns trigger language plpgsql as $$
begin
  insert into relevo_trace.position (lease_id, epoch, position)
  values (new.id, new.epoch, new.position);
  return null;
end $$;
create trigger trace_position after update of position on relevo.lease
  for each row execute function relevo_trace.note_position();
"""

Delivered = tuple[str, int, int, int | None]
"""Id, LSN, ordinal and version of a change."""


async def committed(container: FeedContainer[Any], mode: Mode) -> set[Delivered]:
    """Read the whole feed, with writers stopped: the truth that deliveries are held against."""
    return {
        (c.id, c.lsn, c.ordinal, None if c.current is None else c.item["version"])
        async for page in container.read_changes(mode=mode)
        for c in page.changes
    }


class Trouble(Struct):
    """A time in which a host was frozen, cut off or killed."""

    host: str
    began: float
    ended: float = float("inf")
    killed: bool = False


class Call(Struct):
    """One call of a handler, as its host noted it."""

    host: str
    lease: str
    epoch: int
    began: float
    changes: list[Delivered]
    ended: float = float("inf")
    returned: bool = False


def calls(traces: Iterable[Sequence[dict[str, Any]]], troubles: Sequence[Trouble]) -> list[Call]:
    """Put together what each life of a host recorded; a killed one ended its calls by that."""
    found: list[Call] = []
    for records in traces:
        open_calls: dict[int, Call] = {}
        for r in records:
            if r["event"] == "call":
                changes = [(c[0], c[1], c[2], c[3]) for c in r["changes"]]
                open_calls[r["number"]] = Call(r["host"], r["lease"], r["epoch"], r["at"], changes)
                found.append(open_calls[r["number"]])
            elif r["event"] in ("returned", "cut"):
                ended = open_calls.pop(r["number"])
                ended.ended, ended.returned = r["at"], r["event"] == "returned"
        for call in open_calls.values():
            call.ended = min(
                (t.began for t in troubles
                 if t.killed and t.host == call.host and t.began >= call.began),
                default=call.ended,
            )  # fmt: skip
    return sorted(found, key=lambda call: call.began)


class History(Struct, kw_only=True):
    """All that the witnesses say of one run: writers, the store, hosts, and who hurt them."""

    mode: Mode
    truth: set[Delivered]
    """What the feed holds in the mode of the unit, with writers stopped."""
    versions: set[Delivered]
    """Every version that was ever committed."""
    acknowledged: set[tuple[str, int]]
    calls: list[Call]
    troubles: Sequence[Trouble]
    owners: Sequence[OwnerChange] = ()

    @property
    def completed(self) -> set[Delivered]:
        """Changes of calls that returned."""
        return {change for call in self.calls if call.returned for change in call.changes}


def check(history: History) -> None:
    """Raise `Violation` unless every delivery follows from what was written."""
    _check_nothing_is_lost(history)
    if not all(call.changes for call in history.calls):
        raise Violation("P4: a handler was called with nothing")
    check_no_overlap(history.calls, history.troubles)
    check_order(history.calls, history.mode)
    check_repeats(history)
    if history.mode == "all_versions":
        check_groups(history)
    check_invariants(history.owners)


def _check_nothing_is_lost(history: History) -> None:
    if lost := history.truth - history.completed:
        raise Violation(f"P1: never completed: {sorted(lost)[:20]}")
    known = {(item_id, lsn) for item_id, lsn, _, _ in history.versions}
    if undone := history.acknowledged - known:
        raise Violation(f"F6: acknowledged and not there: {sorted(undone)[:20]}")
    delivered = {change for call in history.calls for change in call.changes}
    if invented := delivered - history.versions:
        raise Violation(f"F3: delivered and never committed: {sorted(invented)[:20]}")


def check_no_overlap(found: Sequence[Call], troubles: Sequence[Trouble]) -> None:
    """P2: one call at a time per lease, but for zombies: hosts in trouble under an old epoch."""
    by_lease: dict[str, list[Call]] = defaultdict(list)
    for call in found:
        by_lease[call.lease].append(call)
    for history in by_lease.values():
        for index, later in enumerate(history):
            for earlier in history[max(0, index - 20) : index]:
                if earlier.epoch > later.epoch:
                    allowed = _troubled(later, troubles)
                elif earlier.ended > later.began:
                    allowed = earlier.epoch < later.epoch and _troubled(earlier, troubles)
                else:
                    continue
                if not allowed:
                    raise Violation(f"P2: calls of one lease overlap: {earlier} and {later}")


def _troubled(call: Call, troubles: Sequence[Trouble], until: float | None = None) -> bool:
    """Whether its host was in trouble during a call, or from its beginning to an instant."""
    end = call.ended if until is None else until
    return any(
        t.host == call.host and t.began <= end and call.began <= t.ended + GRACE_SECONDS
        for t in troubles
    )


def check_order(found: Sequence[Call], mode: Mode) -> None:
    """F4: of one item, versions never go backwards; what is delivered again was delivered before.

    A stretch may be delivered again (its checkpoint was not confirmed), but never in another order;
    in latest-version mode not even that shows an older version. A zombie's call, under an epoch
    that is over, counts for nothing.
    """
    epochs: dict[str, int] = {}
    newest: dict[tuple[str, str], tuple[int, int]] = {}
    seen: set[tuple[str, str, int, int]] = set()
    for call in found:
        if call.epoch < epochs.setdefault(call.lease, call.epoch):
            continue
        epochs[call.lease] = call.epoch
        for item_id, lsn, ordinal, _ in call.changes:
            item, place = (call.lease, item_id), (lsn, ordinal)
            if place < newest.get(item, (0, 0)) and (
                mode != "all_versions" or (*item, *place) not in seen
            ):
                raise Violation(f"F4: {item_id} went back from {newest[item]} to {place}: {call}")
            newest[item] = max(place, newest.get(item, (0, 0)))
            seen.add((*item, *place))


def check_repeats(history: History) -> None:
    """B4: what was completed is completed again only where its checkpoint may have been lost.

    That is: under one epoch while the host was in trouble, or over a move that was not in order.
    """
    unclean = _unclean_epochs(history)
    last: dict[tuple[str, Delivered], Call] = {}
    for call in history.calls:
        for change in call.changes if call.returned else ():
            before = last.get((call.lease, change))
            last[call.lease, change] = call
            if before is None:
                continue
            first, second = sorted((before.epoch, call.epoch))
            moved = any(first < epoch <= second for epoch in unclean[call.lease])
            if not moved and not _troubled(before, history.troubles, until=call.ended):
                raise Violation(f"B4: {change} was completed twice: {before} and {call}")


def check_groups(history: History) -> None:
    """F5: a group is never split over two calls, unless crashes have isolated its changes."""
    sizes = Counter(lsn for _, lsn, _, _ in history.versions)
    unclean = _unclean_epochs(history)
    for call in history.calls:
        losses = sum(epoch <= call.epoch for epoch in unclean[call.lease])
        if losses >= CRASHES_ISOLATE and len(call.changes) == 1:
            continue
        for lsn, size in Counter(lsn for _, lsn, _, _ in call.changes).items():
            if size != sizes[lsn]:
                raise Violation(f"F5: {size} of {sizes[lsn]} changes of group {lsn}: {call}")


def _unclean_epochs(history: History) -> dict[str, list[int]]:
    """By lease, the epochs that began without a release in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for move in history.owners:
        if not move.clean:
            found[move.name].append(move.epoch)
    return found


Effect = tuple[str, str, int | None]
"""Id of the change, id and version of the item."""


def check_effects(applied: Sequence[Effect], truth: Iterable[Delivered]) -> None:
    """P5: the effects are those of one application of each change, in order per item."""
    twice = [one for one, count in Counter(row[0] for row in applied).items() if count > 1]
    if twice:
        raise Violation(f"P5: applied more than once: {sorted(twice)[:20]}")
    wanted: dict[str, list[int | None]] = defaultdict(list)
    for item_id, _, _, version in sorted(truth, key=lambda change: change[1:3]):
        wanted[item_id].append(version)
    found: dict[str, list[int | None]] = defaultdict(list)
    for _, item_id, version in applied:
        found[item_id].append(version)
    for item_id in sorted(wanted.keys() | found.keys()):
        if wanted[item_id] != found[item_id]:
            raise Violation(
                f"P5: {item_id} was written as {wanted[item_id]}, applied as {found[item_id]}"
            )


async def check_positions(database: Database) -> None:
    """L3: positions never move backwards."""
    histories: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in await database.fetch("select * from relevo_trace.position order by seq"):
        for range_id, lsn in msgspec.json.decode(row["position"]).items():
            histories[row["lease_id"], range_id].append(lsn)
    for of, history in histories.items():
        if any(before > after for before, after in pairwise(history)):
            raise Violation(f"L3: the position of {of} went back: {history}")
