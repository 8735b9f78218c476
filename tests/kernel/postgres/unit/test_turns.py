"""How a pool is divided: every use progresses, whatever the others hold."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel import uses
from relevo.kernel.uses import Kind, Turns, Use, shares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KINDS: tuple[Kind, ...] = ("host", "handlers", "requests", "program")
SIZES = [*range(1, 41), 100, 1_000]


def join(turns: Turns, use: Use) -> asyncio.Future[None]:
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turns.join(use, turn)
    return turn


@pytest.mark.parametrize("size", SIZES)
def test_every_use_may_take_at_least_one_connection(size: int) -> None:
    divided = shares(size)
    assert all(1 <= most <= size for most in divided.most.values())
    assert all(1 <= most <= divided.most[kind] for kind, most in divided.key_most.items())
    assert sum(line.kept for line in divided.lines) < size
    kinds = [kind for line in divided.lines for kind in line.kinds]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize("size", [size for size in SIZES if size >= 8])
def test_from_eight_connections_on_the_host_and_groups_have_their_own(size: int) -> None:
    own = {line.kinds for line in shares(size).lines}
    assert {("host",), ("groups",), ("inside",), ("nested",)} <= own


@pytest.mark.parametrize("size", [size for size in SIZES if size >= 4])
def test_no_use_of_users_can_take_everything(size: int) -> None:
    most = shares(size).most
    for kind in ("handlers", "requests", "queries"):
        assert most[kind] < size - sum(line.kept for line in shares(size).lines if line.always)


def test_a_use_keeps_nothing_before_it_is_seen() -> None:
    turns = Turns(shares(10))
    program = 0
    while turns.enter(uses.PROGRAM):
        program += 1
    assert program == 7  # all but one each for groups, and for calls inside transactions
    turns = Turns(shares(10))
    for kind in KINDS:
        assert turns.enter(Use(kind))
    while turns.enter(Use("handlers")):
        pass
    assert turns.taken("handlers") == 4
    turns.leave(Use("host"))
    assert turns.enter(Use("host"))


def test_a_key_has_its_share_of_requests() -> None:
    turns = Turns(shares(20))
    while turns.enter(Use("requests", "a")):
        pass
    assert turns.taken("requests") == shares(20).key_most["requests"]
    assert turns.enter(Use("requests", "b"))


def test_the_key_with_the_fewest_turns_is_next() -> None:
    async def run() -> None:
        turns = Turns(shares(4))
        assert turns.enter(Use("requests", "a"))
        order: list[str] = []
        waiting = []
        for key in ("a", "a", "b"):
            turn = join(turns, Use("requests", key))
            turn.add_done_callback(lambda _, key=key: order.append(key))  # type: ignore[misc]
            waiting.append(turn)
        turns.leave(Use("requests", "a"))
        await asyncio.sleep(0)
        turns.leave(Use("requests", order[0]))
        await asyncio.sleep(0)
        turns.leave(Use("requests", order[1]))
        await asyncio.sleep(0)
        assert order == ["a", "b", "a"]

    asyncio.run(run())


def test_queries_wait_until_nobody_else_does() -> None:
    async def run() -> None:
        turns = Turns(shares(3))
        query = Use("queries", "a")
        assert turns.enter(query)
        later = [join(turns, query) for _ in range(10)]
        program = join(turns, uses.PROGRAM)
        turns.leave(query)
        assert program.done()
        assert not any(turn.done() for turn in later)
        turns.leave(uses.PROGRAM)
        assert later[0].done()

    asyncio.run(run())


def test_a_turn_that_nobody_waits_for_any_more_goes_to_the_next() -> None:
    async def run() -> None:
        turns = Turns(shares(1))
        assert turns.enter(uses.PROGRAM)
        first, second = join(turns, uses.PROGRAM), join(turns, uses.PROGRAM)
        turns.leave(uses.PROGRAM)
        assert first.done()
        turns.forget(uses.PROGRAM, first)  # cancelled in the moment in which it was given
        assert second.done()
        turns.leave(uses.PROGRAM)
        assert turns.waiting == 0
        assert turns.enter(uses.PROGRAM)

    asyncio.run(run())


class Crowd:
    """Tasks that hold connections and need more, as handlers do."""

    def __init__(self, size: int) -> None:
        self.turns = Turns(shares(size))
        self.most = 0
        self._group = asyncio.Lock()

    @asynccontextmanager
    async def taken(self, use: Use) -> AsyncIterator[None]:
        if not self.turns.enter(use):
            await join(self.turns, use)
        self.most = max(self.most, sum(self.turns.taken(kind) for kind in self.turns.shares.most))
        try:
            await asyncio.sleep(0)
            yield
        finally:
            self.turns.leave(use)

    async def grouped(self, *, in_transaction: bool) -> None:
        """One statement of a group at a time, perhaps with a statement beside its transaction."""
        async with self._group, self.taken(Use("groups")):
            if in_transaction:
                async with self.taken(uses.INSIDE):
                    pass

    async def work(self, kind: Kind, key: str, steps: list[str]) -> None:
        async with self.taken(Use(kind, key)):
            for step in steps:
                match step:
                    case "statement":
                        async with self.taken(uses.INSIDE):
                            pass
                    case "group":
                        await self.grouped(in_transaction=False)
                    case "group in transaction":
                        await self.grouped(in_transaction=True)
                    case "nested" if kind != "host":
                        async with self.taken(uses.NESTED):
                            async with self.taken(uses.INSIDE):
                                pass
                            await self.grouped(in_transaction=False)


STEPS = ["statement", "group", "group in transaction", "nested"]


@given(
    st.integers(2, 30),
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.sampled_from(["", "a", "b"]),
            st.lists(st.sampled_from(STEPS)),
        ),
        max_size=60,
    ),
)
def test_whoever_holds_a_connection_always_gets_the_next(
    size: int, works: list[tuple[Kind, str, list[str]]]
) -> None:
    possible = {"statement", "group"}
    if size >= 3:
        possible.add("nested")
    if size >= 6:
        possible.add("group in transaction")

    async def run() -> None:
        crowd = Crowd(size)
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(
                    crowd.work(
                        kind,
                        key if kind == "requests" else "",
                        [one for one in s if one in possible],
                    )
                    for kind, key, s in works
                )
            )
        assert crowd.most <= size
        assert crowd.turns.waiting == 0
        assert not any(crowd.turns.taken(kind) for kind in crowd.turns.shares.most)

    asyncio.run(run())
