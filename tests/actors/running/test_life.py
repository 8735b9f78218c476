"""The life of an activation: activation and its failures, deletion, loss, stored states."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Struct

from relevo.actors import Actor, Interface, method, upgrade
from relevo.errors import (
    ActivationFailed,
    ActivationLost,
    BadArguments,
    CommitFailed,
    InvalidValue,
    ReentrantActivation,
    RemoteError,
    StatePoisoned,
    StateTooNew,
)
from tests.actors import bank
from tests.jobs.office import until

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.bank import Gates
    from tests.actors.running.conftest import Host, Hosts

pytestmark = pytest.mark.anyio


class Box(Interface):
    async def put(self, text: str) -> list[str]: ...
    @method(confirm=False)
    async def put_unconfirmed(self, text: str) -> int: ...
    async def remember(self, key: str, value: int | None) -> None: ...
    async def recall(self, after: str, *, unsaved: str = "") -> dict[str, int]: ...
    async def read(self, key: str) -> int: ...
    async def fail_map(self, key: str) -> None: ...
    async def managed(self) -> list[int]: ...


class BoxState(Struct):
    texts: list[str] = []


def define_box(app: App, gates: Gates, **options: Any) -> None:
    class Shared(Actor[BoxState]):
        async def on_activate(self) -> None:
            gates.log.append("activating")
            match self.ctx.key:
                case "self":
                    await app.actor(Box, "self").put("x")
                case "round":
                    await app.actor(Box, "friend").put("round")
                case "friend":
                    await app.actor(Box, "round").put("x")
                case "fails":
                    self.state.texts.append("from a failed activation")
                    if not gates.event("mended").is_set():
                        raise RuntimeError("cannot begin")
                case "held":
                    await gates.hold("held")

        async def on_deactivate(self, reason: Any) -> None:
            gates.log.append(("left", reason))
            self.state.texts.append("bye")

        async def put(self, text: str) -> list[str]:
            self.state.texts.append(text)
            return self.state.texts

        async def put_unconfirmed(self, text: str) -> int:
            self.state.texts.append(text)
            return len(self.state.texts)

        async def remember(self, key: str, value: int | None) -> None:
            if value is None:
                await self.map("m", int).delete(key)
            else:
                await self.map("m", int).set(key, value)

        async def recall(self, after: str, *, unsaved: str = "") -> dict[str, int]:
            if unsaved:
                await self.map("m", int).set(unsaved, -1)
                await self.map("m", int).delete("gone")
            return {key: value async for key, value in self.map("m", int).scan(after)}

        async def read(self, key: str) -> int:
            return await self.map("m", int).get(key, 0) or 0

        async def fail_map(self, key: str) -> None:
            await self.map("m", int).set(key, 5)
            raise RuntimeError("undone")

        async def managed(self) -> list[int]:
            manager = self.state_manager
            await manager.set_state("n", 1)
            await manager.add_or_update_state("n", 0, lambda _, old: old + 1)
            found = [await manager.get_state("n")]
            await manager.remove_state("n")
            return [*found, int(await manager.contains_state("n"))]

    @app.actor("box", implements=Box, **options)
    class BoxActor(Shared):
        pass


def of(host: Host, key: str) -> Any:
    return host.app.actor(Box, key, type="box")


async def test_activation_fails_for_all_who_wait_and_is_tried_later(hosts: Hosts) -> None:
    host = await hosts.start(define_box)
    calls = [of(host, "fails").with_(timeout=0.05).put(one) for one in "ab"]
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, ActivationFailed)
        assert error.executed is False
    assert host.gates.log == ["activating"]  # I10, and one attempt for both
    host.gates.event("mended").set()
    assert await of(host, "fails").put("c") == ["from a failed activation", "c"]
    for key in ("self", "round"):  # at once, not by a time limit
        with pytest.raises(ReentrantActivation) as reentrant:
            await of(host, key).put("x")
        assert reentrant.value.executed is False


async def test_nothing_runs_before_activation_or_after_deactivation(hosts: Hosts) -> None:
    host = await hosts.start(define_box)
    calls = [asyncio.create_task(of(host, "held").put(one)) for one in "ab"]
    await host.gates.event("held").wait()
    activation = host.activation("box/s:held")
    assert activation is not None
    assert activation.state == "activating"  # I10
    host.gates.open("held")
    assert [await one for one in calls][-1] == ["a", "b"]
    activation.deactivate("requested")
    again = asyncio.create_task(of(host, "held").put("c"))  # I12: it runs in the next one
    assert await again == ["a", "b", "bye", "c"]
    assert host.gates.log == ["activating", ("left", "requested"), "activating"]


async def test_calls_given_back_at_a_hand_over_do_not_run_here(host: Host) -> None:
    alice = host.account("alice")
    held = asyncio.create_task(alice.wait("w"))
    await host.gates.event("w").wait()
    activation = host.activation("account/s:alice")
    assert activation is not None
    slot = activation.home
    queued = asyncio.create_task(alice.with_(timeout=0.3).deposit(100))
    await asyncio.sleep(0)
    slot.is_open = False  # as `drain` does
    activation.deactivate("drain")
    host.gates.open("w")
    assert await held == 2
    await activation.over.wait()
    with pytest.raises(Exception, match=r"no host|deadline|moved"):  # I7
        await queued
    slot.is_open = True
    assert await alice.balance() == 2


async def test_a_deleted_actor_is_fresh(hosts: Hosts) -> None:
    host = await hosts.start()
    alice = host.account("alice")
    await alice.deposit(5)
    await alice.with_(call_id="once").deposit(1)
    held = asyncio.create_task(alice.wait("w"))
    await host.gates.event("w").wait()
    closing = asyncio.create_task(alice.close())
    behind = asyncio.create_task(alice.deposit(1))
    host.gates.open("w")
    await held
    await closing
    assert await behind == 1  # I15: it ran in the fresh actor
    assert await alice.with_(call_id="once").deposit(1) == 2
    assert ("deactivate", "alice", "deleted") in host.gates.log


async def test_commits_that_fail_end_the_activation(
    host: Host,
) -> None:
    alice = host.account("alice")
    await alice.deposit(5)
    await host.app.database.write(
        "update relevo.actor set revision = revision + 1000 where id = $1", "account/s:alice"
    )
    failed = await asyncio.gather(*(alice.deposit(1) for _ in range(3)), return_exceptions=True)
    assert isinstance(failed[0], CommitFailed)  # I22, I24
    done = [one for one in failed if isinstance(one, int)]  # in the next activation
    assert await alice.balance() == 5 + len(done)  # read again


async def test_stored_states_that_cannot_be_read_stay_as_they_are(hosts: Hosts) -> None:
    class NewState(Struct):
        words: list[str] = []

    def define_new(app: App, _: Gates) -> None:
        @app.actor("box", implements=Box, schema=3)
        class NewBox(Actor[NewState]):
            @upgrade(2)
            @staticmethod
            def to_list(old: dict[str, Any]) -> dict[str, Any]:
                return {"all": old["texts"]}

            @upgrade(3)
            @staticmethod
            def to_words(old: dict[str, Any]) -> dict[str, Any]:
                if old["all"] == ["broken"]:
                    raise ValueError("broken")
                return {"words": old["all"]}

            async def put(self, text: str) -> list[str]:
                self.state.words.append(text)
                return self.state.words

            async def put_unconfirmed(self, text: str) -> int:
                return 0

            async def remember(self, key: str, value: int | None) -> None: ...
            async def recall(self, after: str, *, unsaved: str = "") -> dict[str, int]:
                return {}

            async def read(self, key: str) -> int:
                return len(self.state.words)

            async def fail_map(self, key: str) -> None: ...
            async def managed(self) -> list[int]:
                return []

    host = await hosts.start(define_new)
    for key, schema, state in (
        ("old", 1, {"texts": ["a"]}), ("broken", 1, {"texts": ["broken"]}), ("newer", 4, {}),
    ):  # fmt: skip
        await _store(host, f"box/s:{key}", schema, msgspec.msgpack.encode(state))
    old = of(host, "old")
    assert await old.read("") == 1
    assert await host.revision("box/s:old") == 1  # reading writes nothing
    assert await old.put("b") == ["a", "b"]
    for key, kind in (("broken", StatePoisoned), ("newer", StateTooNew)):
        for _ in range(2):
            with pytest.raises(kind) as error:
                await of(host, key).put("x")
            assert error.value.executed is False
    assert dict(await host.rows("select id, revision from relevo.actor where schema <> 3")) == {
        "box/s:broken": 1, "box/s:newer": 1,
    }  # fmt: skip  # I26

    async def noted() -> bool:
        rows = await host.rows("select id from relevo.actor where quarantine_error is not null")
        return sorted(rows) == [("box/s:broken",), ("box/s:newer",)]

    await until(noted, "the administrator can see them")


async def _store(host: Host, canonical: str, schema: int, document: bytes) -> None:
    definition = host.app.actors.types.by_name["box"]
    group, slot = host.app.actors.place(canonical, definition.name)
    await host.app.database.write(
        "insert into relevo.actor (id, placement_group, slot, revision, incarnation, schema,"
        " document, commit_number, updated_at) values ($1, $2, $3, 1, 0, $4, $5, 0, now())",
        canonical, group, slot, schema, document,
    )  # fmt: skip


async def test_maps_see_what_is_not_stored_yet(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relevo.actors.running.activation.ENTRIES_KEPT", 3)
    monkeypatch.setattr("relevo.actors.running.memory.maps.SCAN_ROWS", 2)
    host = await hosts.start(define_box)
    box = of(host, "map")
    await asyncio.gather(*(box.remember(key, n) for n, key in enumerate(["a", "c", "e", "gone"])))
    assert await box.recall("", unsaved="b") == {"a": 0, "b": -1, "c": 1, "e": 2}
    with pytest.raises(RemoteError):
        await box.fail_map("f")
    assert [await box.read(key) for key in "acefx"] == [0, 1, 2, 0, 0]
    await box.remember("c", None)
    assert list(await box.recall("a")) == ["b", "e"]
    activation = host.activation("box/s:map")
    assert activation is not None
    assert len(activation.entries) <= 5
    activation.deactivate("requested")
    assert await box.read("e") == 2
    assert await box.managed() == [2, 0]
    assert await box.put_unconfirmed("x") == 2


async def test_volatile_types_store_nothing(hosts: Hosts) -> None:
    host = await hosts.start(lambda app, gates: define_box(app, gates, persist="volatile"))
    box = of(host, "v")
    assert await box.put("a") == ["a"]
    await box.remember("k", 1)
    assert await box.recall("") == {"k": 1}
    assert await host.rows("select id from relevo.actor") == []
    activation = host.activation("box/s:v")
    assert activation is not None
    activation.deactivate("requested")
    assert await box.put("b") == ["b"]
    with pytest.raises(BadArguments, match="volatile"):
        await box.with_(call_id="c").put("c")
    with pytest.raises(InvalidValue, match="volatile"):
        await host.app.actors.send(box).put("d")


async def test_a_lost_slot_ends_its_actors_at_once(host: Host) -> None:
    alice = host.account("alice")
    await alice.deposit(1)
    held = asyncio.create_task(alice.wait("w"))
    await host.gates.event("w").wait()
    activation = host.activation("account/s:alice")
    assert activation is not None
    slot: Any = activation.home
    slot.lose()
    with pytest.raises(ActivationLost):  # I31
        await held
    slot.is_open = True
    assert await alice.balance() == 1
    assert [one for one in host.gates.log if one[0] == "deactivate"] == []


async def test_classes_that_do_not_fit_their_interface_are_refused(hosts: Hosts) -> None:
    app = hosts.app()
    with pytest.raises(InvalidValue, match="deposit: is missing"):

        @app.actor("account", implements=bank.Account)
        class Wrong(Actor[BoxState]):
            pass
