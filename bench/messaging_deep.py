"""Measures statements of messaging with many messages waiting, and by policy, without hosts.

Claims with many waiting are compared with claims of few by depth and by age. Few that are *as old*
were sent before the last checkpoint, like the many: both sides change their pages first since then,
which writes these to the log as a whole. Few that were *just sent* stand on pages that are changed
already and in the processor's cache. Both sides claim first in half of the rounds.
"""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs
from msgspec.structs import replace

from bench import Figure
from bench.messaging_statements import BODY, Activity, Line, line
from relevo.messaging import Aging, Deadline, Fifo, Strict, Weighted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FEW: Final = 1_000
CLAIMED: Final = 100
CLAIMS: Final = 3
"""So many, and there are messages of all classes left."""
DEEP_ROUNDS: Final = 10
ROUNDS: Final = 3
ONE: Final = (("normal", 4),)
THREE: Final = (("high", 8), ("normal", 4), ("low", 1))
TENANTS: Final = 10_000
POLICIES: Final[Mapping[str, Any]] = {
    "fifo": Fifo(), "strict": Strict(), "aging": Aging(), "deadline": Deadline(),
    "weighted": Weighted(),
}  # fmt: skip
RESERVED: Final = (
    '{"free": 500, "classes": {"high": {"base": 8, "reserved": 100, "used": 0, "most": null}},'
    ' "keys": {}}'
)
"""The slots of consumers that keep 100 of 500 free for the class high."""

FILL: Final = """
insert into relevo.message (rank, enqueued_at, entity_id, class, state, priority, body_kind, size,
  message_id, body)
select case when e.rank_by_time then 1000000 * extract(epoch from now())::bigint else 0 end
    + c.rank_offset - c.base * e.rank_step,
  now(), e.id, c.number, 0, c.base, 0, 200, gen_random_uuid()::text, $2::bytea
from generate_series(1, $3::bigint) n
join relevo.message_entity e on e.id = $1
join relevo.message_class c on c.entity_id = e.id and c.number = (n - 1) % 500 * 3 / 500 + 1
"""
"""As sends of 500 lay them out: PostgreSQL stores what one statement accepts class by class."""
ADOPT: Final = """
with policy as (
  update relevo.message_entity e set policy = o.policy, rank_by_time = o.rank_by_time,
    rank_step = o.rank_step, floor_patience = o.floor_patience
  from relevo.message_entity o where e.id = $1 and o.id = $2
)
update relevo.message_class c set tier = o.tier, rank_offset = o.rank_offset
from relevo.message_class o where c.entity_id = $1 and o.entity_id = $2 and o.number = c.number
"""
"""Has a queue claim by the policy of another; its messages keep their ranks, whose values no claim
depends on, because to rank millions anew for each policy would take most of the time."""


class _Claim(Struct, frozen=True):
    """What a claim took."""

    ms: float
    activity: Activity


async def deep_claims(url: str, waiting: int, fillfactor: str | None = None) -> list[Figure]:
    """Measure claims with many messages waiting beside few, by policy."""
    async with AsyncExitStack() as stack:
        few = {
            name: await stack.enter_async_context(line(url, f"few-{name}", ordering=policy))
            for name, policy in POLICIES.items()
        }
        many = await stack.enter_async_context(line(url, "many"))
        if fillfactor is not None:
            set_factor = f"alter table relevo.message set (fillfactor = {int(fillfactor)})"
            await many.connection.execute(set_factor)
        await many.connection.execute(FILL, many.id, BODY, waiting, timeout=3600)
        figures = []
        for name, beside in few.items():
            await _settle(many)
            await many.connection.execute(ADOPT, many.id, beside.id)
            figures += await _deep(f"claim of {CLAIMED}, {name}", many, beside, waiting, None)
        await _settle(many)
        await many.connection.execute(ADOPT, many.id, few["aging"].id)
        name = f"claim of {CLAIMED}, three classes, one reserved"
        figures += await _deep(name, many, few["aging"], waiting, RESERVED)
        if fillfactor is not None:
            figures = [replace(one, name=f"{one.name}, fillfactor {fillfactor}") for one in figures]
        return figures


async def _settle(many: Line) -> None:
    """Do what autovacuum does in time: without it each policy steps over what others claimed."""
    await many.connection.execute("vacuum analyze relevo.message", timeout=3600)
    await many.connection.execute("checkpoint", timeout=3600)


async def _deep(name: str, many: Line, few: Line, waiting: int, limits: str | None) -> list[Figure]:
    """Measure claims beside few messages as old as the many, and beside few that were just sent."""
    took: dict[tuple[bool, bool], list[_Claim]] = {}
    for turn in range(2 * DEEP_ROUNDS):
        as_old, deep_first = turn % 2 == 0, turn % 4 < 2
        await few.accept(FEW, THREE)
        if as_old:
            await many.connection.execute("checkpoint", timeout=600)
        for one in (many, few) if deep_first else (few, many):
            claims = took.setdefault((as_old, one is many), [])
            for _ in range(CLAIMS):
                before = await one.activity()
                rows, ms = await one.timed_claim(limits, CLAIMED)
                claims.append(_Claim(ms, _since(before, await one.activity())))
                await one.complete(rows)
        while rows := await few.claim():
            await few.complete(rows)
    of = f"{name}, {waiting:,} waiting beside {FEW:,}"
    return [
        figure
        for as_old in (True, False)
        for figure in _figures(
            f"{of} {'as old' if as_old else 'just sent'}", took[as_old, True], took[as_old, False]
        )
    ]


def _figures(name: str, many: Sequence[_Claim], few: Sequence[_Claim]) -> list[Figure]:
    """Return the time of a claim, and what it read and wrote."""

    def middle(claims: Sequence[_Claim], field: str) -> float:
        return float(statistics.median(getattr(one.activity, field) for one in claims))

    measured, beside = (statistics.median(one.ms for one in claims) for claims in (many, few))
    return [
        Figure(name=name, measured=measured, unit="ms", beside=beside, bound=1.3, sense="at_most"),
        *(
            Figure(name=f"  {text}", measured=middle(many, field), unit="",
                   beside=middle(few, field))
            for field, text in (
                ("images", "full-page images"), ("wal_bytes", "bytes of the log"),
                ("reads", "blocks read"), ("hits", "blocks looked at"),
            )
        ),
    ]  # fmt: skip


def _since(before: Activity, after: Activity) -> Activity:
    pairs = zip(structs.astuple(after), structs.astuple(before), strict=True)
    return Activity(*(now - then for now, then in pairs))


async def fair_beside(url: str, count: int) -> list[Figure]:
    """Measure sends, claims and completions with 10,000 tenants beside none."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    async with (
        line(url, "fair", ordering=Strict(), fair=True) as fair,
        line(url, "plain", ordering=Strict()) as plain,
    ):
        for _ in range(ROUNDS):
            for one in (fair, plain):
                keys = TENANTS if one is fair else 0
                cost = await one.cost(one.through(count, ONE, keys), count)
                rates[one is fair].append(cost.per_second)
    measured, beside = (statistics.median(rates[keyed]) for keyed in (True, False))
    return [Figure(name=f"fair between {TENANTS:,} keys beside without", measured=measured,
                   unit="messages/s", beside=beside, bound=0.5)]  # fmt: skip


async def server_cost(url: str, count: int) -> list[Figure]:
    """Measure what a message costs PostgreSQL from send to completion, by step."""
    figures = []
    async with line(url, "cost") as queue:
        for name, classes in (("one class", ONE), ("three classes", THREE)):
            found = [await queue.costs(count, classes) for _ in range(ROUNDS)]
            steps = [statistics.median(step) for step in zip(*found, strict=True)]
            figures.append(
                Figure(name=f"CPU of PostgreSQL per message, {name}", measured=sum(steps),
                       unit="µs", beside=25.0, bound=1.0, sense="at_most")
            )  # fmt: skip
            figures += [
                Figure(name=f"  {step}", measured=cpu, unit="µs")
                for step, cpu in zip(("sent", "claimed", "completed"), steps, strict=True)
            ]
    return figures


async def bare_rates(url: str, count: int) -> dict[str, float]:
    """Measure how fast the statements alone send and drain, on two connections."""
    async with line(url, "bare") as one:
        sent = await one.cost(one.accept(count, ONE), count)
        async with one.second() as other:
            drained = await one.cost(one.drain_with(other, count), count)
    return {"bulk_per_second": sent.per_second, "drain_1_per_second": drained.per_second}
