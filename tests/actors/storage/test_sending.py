"""Durable messages from outside: together, in a caller's transaction, to slots that exist."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest

from relevo import settings
from relevo.actors.storing.storage import ActorStorage
from relevo.errors import InvalidValue
from relevo.kernel.postgres import Wakeups, grants
from relevo.kernel.postgres.database import Database
from tests.actors.storage.slots import GROUP, message, table
from tests.jobs.test_foreign_submits import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.actors.storage.slots import Slots

pytestmark = pytest.mark.anyio
COLUMNS = "number, receiver, sender, placement_group, slot, method, body, digest, attempts, on_dead"
BODY = bytes(range(256))


class Undone(Exception):
    """Rolls a transaction back."""


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    return asynccontextmanager(request.param)


async def test_messages_are_there_when_the_callers_transaction_commits(
    storage: ActorStorage,
    slots: Slots,
    database: Database,
    relevo_url: str,
    way: Callable[[str], AbstractAsyncContextManager[Any]],
) -> None:
    odd = message("it's %s :x", BODY, method="n'ote", headers={"h": "%s €"}, attempts=3)
    with pytest.raises(Undone):
        async with way(relevo_url) as tx:
            await storage.sending.send([odd], tx=tx)
            raise Undone
    async with way(relevo_url) as tx:
        numbers = await storage.sending.send([odd, message("bob", on_dead="block")], tx=tx)
        assert await table(database, "actor_message") == []
    sent = await table(database, "actor_message", COLUMNS)
    assert sent == [
        (
            numbers[0], odd.receiver, "", GROUP, odd.slot, "n'ote", BODY, "", 3, "continue",
        ),
        (numbers[1], "account/s:bob", "", GROUP, sent[1][4], "note", b"body", "", 20, "block"),
    ]  # fmt: skip
    due = await storage.inbox.due([GROUP], [odd.slot], 10)
    assert odd.headers in [one.headers for one in due.messages]


async def test_sends_share_statements_and_a_wrong_one_fails_alone(
    storage: ActorStorage, slots: Slots, database: Database
) -> None:
    wrong = message("bob")
    lost = type(wrong)(wrong.receiver, "nowhere", 0, "note", b"")
    beyond = type(wrong)(wrong.receiver, GROUP, 4_000, "note", b"")
    sends = [
        storage.sending.send([message("bob", b"1"), message("dan", b"2")]),
        storage.sending.send([message("bob", b"lost"), lost]),
        storage.sending.send([beyond]),
        storage.sending.send([]),
        storage.sending.send([message("bob", b"3")]),
    ]
    done = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(one) for one in done] == [list, InvalidValue, InvalidValue, list, list]
    kept = dict(await table(database, "actor_message", "number, body"))
    assert [kept[number] for number in (*done[0], *done[4])] == [b"1", b"2", b"3"]  # type: ignore[misc]
    assert len(kept) == 3
    async with database.transaction() as tx:
        with pytest.raises(InvalidValue, match="nowhere"):
            async with tx.transaction():
                await storage.sending.send([lost], tx=tx)


async def test_a_submitter_may_send_and_nothing_else(
    slots: Slots, database: Database, relevo_url: str
) -> None:
    names = {kind: f"{kind}_{uuid4().hex[:8]}" for kind in grants.KINDS}
    names["owner"] = await database.fetchval("select current_user")
    async with database.transaction() as tx:
        facts = await grants.look(tx, "relevo", names)
        await grants.execute(tx, grants.statements(facts, names))
    try:
        mark = "&" if "?" in relevo_url else "?"
        for kind in ("submitter", "host"):
            url = f"{relevo_url}{mark}options=-c%20role%3D{names[kind]}"
            told = settings.load({"database_url": url}, environ={})
            async with await Database.open(told) as mine:
                storage = ActorStorage(mine, Wakeups(mine))
                assert await storage.sending.send([message("bob")])
                commit = storage.commit(slots.delta("alice", 0, document=b"x"))
                if kind == "host":
                    await commit
                    continue
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await commit
                for name in ("actor", "actor_message", "actor_group"):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await table(mine, name)
        assert await table(database, "actor", "id, revision") == [("account/s:alice", 1)]
    finally:
        async with database.transaction() as tx:
            for kind in grants.KINDS[1:]:
                await tx.execute(f"drop owned by {names[kind]}; drop role {names[kind]}")
            await tx.execute("delete from relevo.granted_role")
