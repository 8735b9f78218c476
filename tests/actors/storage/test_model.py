"""Batches of turns against a model that does one turn after the other, with dicts."""

from __future__ import annotations

import asyncio
import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.actors.core.deltas import (
    Delta,
    EntryChange,
    OutgoingMessage,
    RecordedCall,
    ReminderChange,
)
from relevo.actors.core.folding import fold
from relevo.actors.storing.commits import statement_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.testing.databases import TestDatabases

ACTORS = ("a/s:x", "a/s:y", "a/s:z")
HOLDS, STALE = 1, 2
DUES = [datetime(2030, 1, day, tzinfo=UTC) for day in (1, 2)]
SET_UP = """
insert into relevo.host (incarnation, name, lease_until, started_at, version)
values (gen_random_uuid(), 'h', 'infinity', relevo.now(), '1');
insert into relevo.unit (kind, name, strict, handoff_timeout, rest)
values ('actors', 'g', true, '1 s', '1 s');
insert into relevo.lease (unit_id, name, owner, epoch, free_since)
select u.id, '0', h.incarnation, 1, null from relevo.unit u, relevo.host h
"""
NAMES = st.sampled_from("pq")
VALUES = st.binary(max_size=2)


class Stored:
    """What the model has of one actor."""

    def __init__(self) -> None:
        self.row: tuple[Any, ...] = (0, 0, None, 1, False)
        """Revision, incarnation, document, schema, deleted."""
        self.entries: dict[tuple[str, str], bytes] = {}
        self.reminders: dict[str, datetime] = {}
        self.calls: dict[str, bytes] = {}

    def apply(self, delta: Delta) -> None:
        revision, incarnation, document, schema, _ = self.row
        if delta.deleted:
            self.__init__()  # type: ignore[misc]
            self.row = (revision + 1, incarnation + 1, None, 1, True)
            return
        if delta.document is not None:
            document, schema = delta.document, delta.schema
        self.row = (revision + 1, incarnation, document, schema, False)
        for entry in delta.entries:
            self.entries.pop((entry.map, entry.key), None)
            if entry.value is not None:
                self.entries[entry.map, entry.key] = entry.value
        for reminder in delta.reminders:
            self.reminders.pop(reminder.name, None)
            if reminder.due is not None:
                self.reminders[reminder.name] = reminder.due
        self.calls |= {call.call_id: call.answer for call in delta.recorded}


class Model:
    """Actors and the bodies of the messages that wait."""

    def __init__(self) -> None:
        self.actors = {actor: Stored() for actor in ACTORS}
        self.bodies: list[bytes] = []

    def run(self, actor: str, deltas: list[Delta], live: dict[int, bytes]) -> int:
        """Do the turns of an actor in a batch; return how many, from the first, were stored.

        A turn that does not follow the one before it is refused, with those after it. One whose
        message or occurrence was gone before the batch fails all turns up to it, too.
        """
        if not deltas or deltas[0].epoch != 1:
            return 0
        before, gone = copy.deepcopy(self.actors[actor]), set[int]()
        now = copy.deepcopy(before)
        touched: set[str] = set()
        wiped, done, sent = False, 0, list[bytes]()
        for delta in deltas:
            if (delta.base, delta.incarnation) != now.row[:2] or delta.handled_message in gone:
                break
            if delta.handled_reminder is not None:
                name, due = delta.handled_reminder
                if now.reminders.get(name) != due:
                    if wiped or name in touched:
                        break
                    return 0
            if delta.handled_message is not None:
                if delta.handled_message not in live:
                    return 0
                gone.add(delta.handled_message)
            now.apply(delta)
            wiped = wiped or delta.deleted
            touched |= {one.name for one in delta.reminders} if not delta.deleted else set()
            sent += [one.body for one in delta.messages]
            done += 1
        self.actors[actor] = now
        self.bodies += sent
        for number in gone:
            self.bodies.remove(live[number])
        return done


class Tables:
    """The same in the database, in a transaction that is rolled back."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._db = self.do(asyncpg.connect(url))
        self.do(self._db.execute(SET_UP))
        self.lease = self.do(self._db.fetchval("select id from relevo.lease"))

    def do(self, work: Any) -> Any:
        return self._runner.run(_awaited(work))

    def rows(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.do(self._db.fetch(sql, *arguments))]

    def begin(self) -> Any:
        transaction = self._db.transaction()
        self.do(transaction.start())
        return transaction

    def live(self) -> dict[int, bytes]:
        return dict(self.rows("select number, body from relevo.actor_message"))

    def commit(self, deltas: list[Delta], number: int, *, alone: bool = False) -> dict[str, str]:
        """Commit a batch; return the outcome of each actor that was not written.

        With `alone` each actor has a statement, as on an idle system.
        """
        changes, _ = fold(deltas)
        changes = [one for one in changes if one.places]
        refused: dict[str, str] = {}
        for part in [[one] for one in changes] if alone else [changes] if changes else []:
            sql, arguments = statement_of(part)
            rows = self.rows(sql, number, *arguments)
            refused |= {part[n - 1].actor: outcome for n, outcome in rows}
        return refused

    def stored(self, actor: str) -> Stored:
        stored = Stored()
        rows = self.rows(
            "select revision, incarnation, document, schema, deleted_at is not null"
            " from relevo.actor where id = $1", actor,
        )  # fmt: skip
        stored.row = rows[0] if rows else stored.row
        found = "select {} from relevo.{} where actor = $1"
        stored.entries = {
            (map_, key): value
            for map_, key, value in self.rows(found.format("map, key, value", "actor_entry"), actor)
        }
        stored.reminders = dict(self.rows(found.format("name, due", "actor_reminder"), actor))
        stored.calls = dict(self.rows(found.format("call_id, answer", "actor_call"), actor))
        return stored

    def close(self) -> None:
        self.do(self._db.close())
        self._runner.close()


async def _awaited(work: Any) -> Any:
    return await work


@pytest.fixture(scope="module")
def tables(relevo_databases: TestDatabases) -> Iterator[Tables]:
    url = relevo_databases.create()
    tables = Tables(url)
    yield tables
    tables.close()
    relevo_databases.drop(url)


def a_turn(
    draw: Any, lease: int, actor: str, at: tuple[int, int], live: dict[int, bytes], plain: bool
) -> Delta:
    """A turn of an actor at a revision and incarnation, which is wrong now and then.

    A plain one changes the document at most.
    """
    rarely = st.integers(0, 9).map(lambda n: n == 0)
    revision, incarnation = at
    if plain:
        return Delta(
            actor, lease, STALE if draw(rarely) else HOLDS, "g", 0,
            incarnation + draw(rarely), max(0, revision + draw(st.sampled_from([0] * 8 + [1, -1]))),
            draw(st.none() | VALUES), draw(st.integers(1, 2)),
        )  # fmt: skip
    entry = st.builds(EntryChange, NAMES, NAMES, st.none() | VALUES)
    reminder = st.builds(ReminderChange, NAMES, st.none() | st.sampled_from(DUES))
    call = st.builds(RecordedCall, NAMES, st.just("m"), VALUES, VALUES)
    message = st.builds(
        OutgoingMessage, st.sampled_from(ACTORS), st.just("g"), st.just(0), st.just("m"), VALUES
    )
    numbers = st.sampled_from([*live, -1]) if live else st.none()
    deleted = draw(rarely)
    most = 0 if deleted else 2
    entries, reminders, calls = (
        tuple(draw(st.lists(kind, max_size=most))) for kind in (entry, reminder, call)
    )
    return Delta(
        actor, lease, STALE if draw(rarely) else HOLDS, "g", 0,
        incarnation + draw(rarely), max(0, revision + draw(st.sampled_from([0] * 8 + [1, -1]))),
        None if deleted else draw(st.none() | VALUES), draw(st.integers(1, 2)),
        entries, reminders, tuple(draw(st.lists(message, max_size=2))), calls,
        handled_message=draw(st.none() | numbers),
        handled_reminder=draw(st.none() | st.tuples(NAMES, st.sampled_from(DUES))),
        deleted=deleted,
    )  # fmt: skip


@pytest.mark.parametrize("alone", [False, True], ids=["batches", "actors alone"])
@given(data=st.data())
def test_batches_do_what_their_turns_do_one_by_one(
    tables: Tables, alone: bool, data: st.DataObject
) -> None:
    model = Model()
    transaction = tables.begin()
    try:
        for number in range(1, data.draw(st.integers(1, 5)) + 1):
            live = tables.live()
            at = {actor: one.row[:2] for actor, one in model.actors.items()}
            batch: list[Delta] = []
            for _ in range(data.draw(st.integers(1, 6))):
                actor = data.draw(st.sampled_from(ACTORS))
                plain = alone and data.draw(st.sampled_from([True, True, False]))
                turn = a_turn(data.draw, tables.lease, actor, at[actor], live, plain)
                handled = {one.handled_message for one in batch if one.actor != actor}
                if turn.handled_message in handled:  # a message has one receiver
                    turn.handled_message = None
                batch.append(turn)
                at[actor] = (turn.revision, turn.incarnation + turn.deleted)
            expected = {}
            for actor in ACTORS:
                # Turns under another epoch are a batch of their own, which is stale.
                mine = [one for one in batch if one.actor == actor and one.epoch == HOLDS]
                expected[actor] = bool(mine) and model.run(actor, mine, live) > 0
            for _ in range(data.draw(st.integers(1, 2))):  # again, as after an unknown outcome
                refused = tables.commit(batch, number, alone=alone)
                for actor, stored in model.actors.items():
                    assert vars(tables.stored(actor)) == vars(stored)
                    if any(one.actor == actor and one.epoch == STALE for one in batch):
                        continue
                    if any(one.actor == actor for one in batch):
                        assert (actor not in refused) == expected[actor]
                assert sorted(tables.live().values()) == sorted(model.bodies)
    finally:
        tables.do(transaction.rollback())
