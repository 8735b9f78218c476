"""Another number of slots for a placement group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.actors.core.identity import slot_of
from relevo.actors.operating.resizing import resize_group
from relevo.errors import Conflict, InvalidValue, NotFound, SettingsMismatch
from relevo.limits import ACTOR_SLOTS_MAX
from tests.actors import bank
from tests.actors.running.test_due_work import Diary, define_diary
from tests.jobs.office import until

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.running.conftest import Hosts

pytestmark = pytest.mark.anyio
KEYS = [f"k{number}" for number in range(8)]


def program(hosts: Hosts, slots: int) -> App:
    app = hosts.app(actors_slots=slots)
    define_diary(app, bank.Gates())
    return app


def diary(app: App, key: str) -> Any:
    return app.actor(Diary, key)


async def rows(app: App, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await app.database.fetch(sql)]


async def test_actors_reminders_and_messages_are_found_in_other_slots(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relevo.actors.operating.resizing.ROWS", 3)
    first = program(hosts, 2)
    async with first.host():
        for key in KEYS:
            await diary(first, key).write(f"to {key}")
            await diary(first, key).remind("soon", {"after": 3_600.0})
        with pytest.raises(Conflict, match=r"is served by .*; stop these hosts"):
            await resize_group(first.database, "default", 5)
    client = program(hosts, 2)
    await hosts.enter(client)
    for key in KEYS:
        await client.actors.send(diary(client, key)).write("sent")
    placed: list[int] = []
    epochs = max(await rows(client, "select epoch from relevo.lease where name in ('0', '1')"))
    resized = await resize_group(client.database, "default", 5, placed.append)
    assert (resized.slots, resized.slots_before, resized.actors) == (5, 2, len(KEYS))
    assert (resized.messages, placed) == (len(KEYS), [3, 6, 8, 11, 14, 16])
    for table, actor in (
        ("actor", "id"), ("actor_reminder", "actor"), ("actor_message", "receiver")
    ):  # fmt: skip
        found = await rows(client, f"select {actor}, slot from relevo.{table}")
        assert len(found) == len(KEYS), table
        assert all(slot == slot_of(canonical, 5) for canonical, slot in found), table
    leases = await rows(
        client,
        "select l.name, l.epoch from relevo.lease l join relevo.unit u on u.id = l.unit_id"
        " where u.kind = 'actors' and u.name = 'default' order by 1",
    )
    assert [name for name, _ in leases] == ["0", "1", "2", "3", "4"]
    assert {epoch > epochs[0] for _, epoch in leases} == {True}
    with pytest.raises(SettingsMismatch, match=r"has 5 slots.*relevo actor slots default 2"):
        async with program(hosts, 2).host():
            pass
    third = program(hosts, 5)
    async with third.host():
        slots = third.actors.runtime.slots
        await until(lambda: len(slots) == 5, "it owns its slots")
        for key in KEYS:

            async def has_both(key: str = key) -> bool:
                return sorted(await diary(third, key).texts()) == ["sent", f"to {key}"]

            await until(has_both, f"{key} has its state and its message")
    events = await client.database.fetchval(
        "select count(*) from relevo.event where type = 'relevo.actor.slots_changed'"
    )
    assert events == 1


async def test_what_cannot_be_done_changes_nothing(hosts: Hosts) -> None:
    app = program(hosts, 2)
    async with app.host():
        await diary(app, "k").write("text")
    await hosts.enter(client := program(hosts, 2))
    with pytest.raises(NotFound, match=r"no host has ever served .*'defualt'; there are: default"):
        await resize_group(client.database, "defualt", 4)
    for slots in (0, ACTOR_SLOTS_MAX + 1):
        with pytest.raises(InvalidValue, match="a group has 1 to 4096 slots"):
            await resize_group(client.database, "default", slots)
    with pytest.raises(InvalidValue, match="Relevo's own"):
        await resize_group(client.database, "relevo", 4)
    await client.database.write(
        "insert into relevo.actor_group (name, slots) values ('other', $1)", ACTOR_SLOTS_MAX - 2
    )
    with pytest.raises(InvalidValue, match="all groups together would have"):
        await resize_group(client.database, "default", 3)
    assert await rows(client, "select slots from relevo.actor_group where name = 'default'") == [
        (2,)
    ]
