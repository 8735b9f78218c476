"""Actors over HTTP: called by the gateway, seen, repaired, and run by operators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import Forbidden
from tests.actors.http.conftest import Till

if TYPE_CHECKING:
    from relevo.actors import ActorCall
    from tests.actors.http.conftest import Bench

pytestmark = pytest.mark.anyio


async def events_of(bench: Bench, actor: str) -> list[tuple[str, Any]]:
    """Return the events about an actor: their types, and the key that asked."""
    page = await bench.app.events.read()
    return [
        (one.type.removeprefix("relevo.actor."), msgspec.json.decode(one.body).get("by"))
        for one in page.events
        if one.subject == f"actor/{actor}"
    ]


async def call(bench: Bench, key: str, method: str, status: int = 200, **arguments: Any) -> Any:
    path = f"actors/till/{key}/methods/{method}"
    reply = await bench.wire("producer").ask("POST", path, arguments, status=status)
    return reply.json


async def test_the_gateway_calls_methods_with_arguments_by_name(bench: Bench) -> None:
    assert await call(bench, "anna", "add", cents=5, note="first") == {"result": 5}
    assert await call(bench, "anna", "add", cents=7) == {"result": 12}
    assert await call(bench, "anna", "total") == {"result": 12}
    assert await bench.app.actor(Till, "anna").total() == 12
    # A number is another actor than its digits.
    assert await call(bench, "i:42", "add", cents=1) == {"result": 1}
    assert await call(bench, "42", "total") == {"result": 0}
    assert await bench.app.actor(Till, 42).total() == 1


async def test_the_gateway_calls_stateless_types_by_the_name_of_their_activations(
    bench: Bench,
) -> None:
    wire = bench.wire("producer")
    for name in ("default", "apart"):
        path = f"actors/counter/{name}/methods/count"
        for number in (1, 2):
            reply = await wire.ask("POST", path, {})
            assert reply.json == {"result": number}
    path = "actors/counter/default/methods/count"
    refused = await wire.ask("POST", path, {}, status=400, Idempotency_Key="once")
    assert refused.json["code"] == "bad_arguments"
    await bench.wire("viewer").ask("GET", "actors/counter/default", status=400)
    shown = (await bench.wire("viewer").get("actor-figures"))["here"]
    (figures,) = [one for one in shown if one["type"] == "counter"]
    assert (figures["activations"], figures["max_local"], figures["waiting"]) == (2, 3, 0)
    assert 'relevo_actor_activations{type="counter"} 2.0' in bench.app.measure().decode()


async def test_a_repeat_with_the_same_key_gets_the_recorded_answer(bench: Bench) -> None:
    wire, path = bench.wire(), "actors/till/once/methods/add"
    for _ in range(2):
        reply = await wire.ask("POST", path, {"cents": 3}, Idempotency_Key="pay-17")
        assert reply.json == {"result": 3}
    reply = await wire.ask("POST", path, {"cents": 4}, status=422, Idempotency_Key="pay-17")
    assert reply.json["code"] == "idempotency_key_reused"
    other = await bench.wire("producer").ask("POST", path, {"cents": 3}, Idempotency_Key="pay-17")
    assert other.json == {"result": 6}  # another caller's key is another call


@pytest.mark.parametrize(
    ("key", "method", "arguments", "status", "code", "executed"),
    [
        ("a", "nothing", {}, 404, "unknown_method", False),
        ("a", "__init__", {}, 404, "unknown_method", False),
        ("a", "$delete", {}, 404, "unknown_method", False),
        ("a", "add", {}, 400, "bad_arguments", False),
        ("a", "add", {"cents": "5"}, 400, "bad_arguments", False),
        ("a", "add", {"cents": 1, "more": 2}, 400, "bad_arguments", False),
        ("a", "pay", {"cents": 9}, 422, "method_raised", True),
        ("i:x", "add", {"cents": 1}, 400, "invalid_value", None),
        ("a%01b", "add", {"cents": 1}, 400, "invalid_value", None),
    ],
)
async def test_a_refused_call_says_whether_it_ran(
    bench: Bench, key: str, method: str, arguments: Any, status: int, code: str, executed: Any
) -> None:
    problem = await call(bench, key, method, status, **arguments)
    assert problem["code"] == code, problem
    assert problem.get("executed") is executed
    if code == "method_raised":
        assert problem["detail"] == "Refused: 9 is too much"


async def test_an_undeclared_error_keeps_its_text_from_callers(bench: Bench) -> None:
    problem = await call(bench, "b", "break_down", 500)
    assert (problem["code"], problem["executed"]) == ("remote_error", True)
    assert "secret" not in problem["detail"]


async def test_an_unknown_type_is_not_found(bench: Bench) -> None:
    for path in ("methods/add", ":deactivate", "/quarantine:reset"):
        place = f"actors/tyll/a{path if path[0] in ':/' else '/' + path}"
        await bench.wire().refused("POST", place, {}, 404, "not_found")


async def test_a_deadline_is_the_callers(bench: Bench) -> None:
    path = "actors/till/slow/methods/wait"
    reply = await bench.wire().ask("POST", path, {}, status=504, Prefer="wait=0.05")
    assert (reply.json["code"], reply.json["executed"]) == ("deadline_exceeded", None)
    bench.open.set()
    await bench.wire().ask("POST", path, {}, status=400, Prefer="wait=9999")


async def test_an_actor_is_seen_without_and_with_its_state(bench: Bench) -> None:
    await call(bench, "seen", "add", cents=5)
    viewer = bench.wire("viewer")
    shown = await viewer.get("actors/till/seen")
    assert (shown["id"], shown["host"], shown["stored"]) == ("till/s:seen", "alpha", True)
    assert shown["epoch"] >= 1
    await viewer.get("actors/till/seen/state", 403)
    state = await bench.wire().get("actors/till/seen/state")
    assert state["state"] == {"cents": 5, "reminded": 0}
    absent = await viewer.get("actors/till/absent")
    assert (absent["stored"], absent["revision"]) == (False, 0)
    await bench.wire().refused("GET", "actors/till/absent/state", None, 404, "not_found")
    assert (await viewer.get("actors/till/absent/activation"))["host"] is None
    active = await viewer.get("actors/till/seen/activation")
    assert (active["host"], active["state"]) == ("alpha", "active")


async def test_actors_are_listed_in_pages(bench: Bench) -> None:
    for key in ("list-a", "list-b", "list-c"):
        await call(bench, key, "add", cents=1)
    found, cursor = [], ""
    while True:
        page = await bench.wire("viewer").get(f"actors/till?limit=2{cursor}")
        found += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert [one for one in found if "list-" in one] == [
        "till/s:list-a", "till/s:list-b", "till/s:list-c",
    ]  # fmt: skip


async def test_an_actor_is_deactivated_and_deleted(bench: Bench) -> None:
    await call(bench, "gone", "add", cents=5)
    operator = bench.wire("operator")
    assert await operator.post("actors/till/gone:deactivate") == {"deactivated": True}
    assert await operator.post("actors/till/gone:deactivate") == {"deactivated": False}
    assert await call(bench, "gone", "total") == {"result": 5}
    await operator.ask("DELETE", "actors/till/gone", status=204)
    assert await call(bench, "gone", "total") == {"result": 0}  # I15
    assert (await operator.get("actors/till/gone"))["stored"] is False
    assert await events_of(bench, "till/s:gone") == [
        ("deactivated", "operator"), ("deleted", "operator"),
    ]  # fmt: skip
    await bench.wire("producer").ask("DELETE", "actors/till/gone", status=403)
    await bench.wire("viewer").ask("POST", "actors/till/gone:deactivate", {}, status=403)


async def test_a_slot_cannot_move_to_a_host_that_is_not_there(bench: Bench) -> None:
    await bench.wire().refused("POST", "actors/till/a:move", {"to": "beta"}, 409, "conflict")


async def test_reminders_are_listed_fired_and_canceled(bench: Bench) -> None:
    for name in ("one", "two"):
        await call(bench, "remind", "remind", name=name, after=3_600)
    operator, path = bench.wire("operator"), "actors/till/remind/reminders"
    listed = (await operator.get(path))["items"]
    assert [(one["name"], one["method"]) for one in listed] == [
        ("one", "on_time"), ("two", "on_time"),
    ]  # fmt: skip
    await operator.ask("POST", f"{path}/one:fire", {}, status=204)
    async with asyncio.timeout(30):
        await bench.reminded.wait()
    await operator.ask("DELETE", f"{path}/two", status=204)
    await operator.refused("DELETE", f"{path}/two", None, 404, "not_found")
    assert (await operator.get(path))["items"] == []
    await operator.refused("POST", f"{path}/three:fire", {}, 404, "not_found")
    assert await events_of(bench, "till/s:remind") == [
        ("reminder_fired", "operator"), ("reminder_canceled", "operator"),
    ]  # fmt: skip


async def test_dead_letters_are_listed_shown_redriven_and_discarded(bench: Bench) -> None:
    app, operator = bench.app, bench.wire("operator")
    bench.fails = True
    await app.actors.send(app.actor(Till, "dead"), attempts=1).add(-5)
    await app.actors.send(app.actor(Till, "dead"), attempts=1).add(-6)
    await call(bench, "dead", "remind", name="bad", after=0, attempts=1)
    query = "actor-letters?actor=till/s:dead"
    async with asyncio.timeout(30):
        while len(letters := (await operator.get(query))["items"]) < 3:
            await asyncio.sleep(0.02)
    assert [one["kind"] for one in letters] == ["message", "message", "reminder"]
    assert "not below 0" in letters[0]["error"]
    first = await operator.get(f"{query}&limit=2")
    rest = await operator.get(f"{query}&limit=2&cursor={first['next']}")
    assert first["items"] + rest["items"] == letters
    faults = (await operator.get("actors/till/dead/errors"))["items"]
    assert [(one["kind"], one["dead"]) for one in faults] == [
        ("message", True), ("message", True), ("reminder", True),
    ]  # fmt: skip
    path = f"actor-letters/{letters[0]['id']}"
    await operator.get(path, 403)
    assert (await bench.wire().get(path))["content"] == [-5, ""]
    bench.fails = False
    await operator.ask("POST", f"{path}:redrive", {}, status=204)
    await operator.ask("DELETE", f"actor-letters/{letters[1]['id']}", status=204)
    await operator.ask("POST", f"actor-letters/{letters[2]['id']}:redrive", {}, status=204)
    async with asyncio.timeout(30):
        while await app.actor(Till, "dead").total() != -5:
            await asyncio.sleep(0.02)
    assert (await operator.get(query))["items"] == []
    await operator.refused("GET", "actor-letters/x9", None, 403, "forbidden")
    await bench.wire().refused("GET", "actor-letters/x9", None, 400, "invalid_value")
    await bench.wire().refused("DELETE", path, None, 404, "not_found")
    assert sorted(await events_of(bench, "till/s:dead")) == [
        ("letter_discarded", "operator"), ("letter_redriven", "operator"),
        ("letter_redriven", "operator"),
    ]  # fmt: skip


async def test_state_in_quarantine_is_exported_and_replaced(bench: Bench) -> None:
    admin, path = bench.wire(), "actors/till/sick"
    await call(bench, "sick", "add", cents=5)
    await admin.post(f"{path}:deactivate")
    await bench.app.database.write(
        "update relevo.actor set document = $1 where id = 'till/s:sick'", b"\xc1"
    )
    problem = await call(bench, "sick", "total", 503)
    assert (problem["code"], problem["executed"]) == ("state_poisoned", False)
    async with asyncio.timeout(30):
        while not (listed := (await admin.get("actor-quarantine"))["items"]):
            await asyncio.sleep(0.02)
    assert [one["id"] for one in listed] == ["till/s:sick"]
    exported = await admin.get(f"{path}/quarantine")
    assert exported["document"] == "wQ=="  # I26
    await admin.refused("POST", f"{path}/quarantine:replace", {}, 400, "invalid_value")
    state = {"state": {"cents": 40}}
    await admin.ask("POST", f"{path}/quarantine:replace", state, status=204)
    await admin.refused("POST", f"{path}/quarantine:retry", {}, 404, "not_found")
    assert (await admin.get(f"{path}/state"))["state"] == {"cents": 40}
    assert ("state_replaced", "admin") in await events_of(bench, "till/s:sick")
    await bench.wire("operator").ask("GET", f"{path}/quarantine", status=403)


async def test_a_key_with_a_scope_reaches_its_types_only(bench: Bench) -> None:
    made = await bench.wire().post(
        "keys", {"name": "tills", "roles": ["producer"], "scopes": ["actor:till"]}, 201
    )
    bench.site.secrets["tills"] = made["secret"]
    scoped = bench.wire("tills")
    assert await scoped.post("actors/till/scoped/methods/total") == {"result": 0}
    await scoped.ask("POST", "actors/tyll/scoped/methods/total", {}, status=403)


async def test_an_app_asks_the_same_in_python(bench: Bench) -> None:
    actors, proxy = bench.app.actors, bench.app.actor(Till, "python")
    await proxy.add(5)
    assert await actors.owner(proxy) == "alpha"
    assert [one.state for one in actors.activations(proxy)] == ["active"]
    record = await actors.get(proxy)
    assert record is not None
    assert record.id == "till/s:python"
    assert await actors.deactivate("till/s:python")
    assert list(actors.activations(proxy)) == []
    await actors.delete(proxy)
    assert await actors.get(proxy) is None
    page = await actors.list("till", "till/s:pytho", limit=1)
    assert all(one.id != "till/s:python" for one in page.items)


async def test_filters_are_around_calls_and_turns(bench: Bench) -> None:
    actors = bench.app.actors
    seen: list[Any] = []

    @actors.outgoing
    async def sign(call: ActorCall, proceed: Any) -> None:
        call.headers["tenant"] = "acme"
        await proceed()
        seen.append(("out", call.name))

    @actors.incoming
    async def check(call: ActorCall, proceed: Any) -> None:
        if call.name == "total" and call.actor.key == "locked":
            raise Forbidden("the till is locked")
        await proceed()
        seen.append((call.kind, call.name, call.headers.get("tenant")))

    try:
        assert await bench.app.actor(Till, "filtered").add(5) == 5
        with pytest.raises(Forbidden):
            await bench.app.actor(Till, "locked").total()
        await actors.deactivate("till/s:filtered")
    finally:
        actors.types.incoming.clear()
        actors._outgoing.clear()
    assert seen == [("method", "add", "acme"), ("out", "add")]


async def test_turns_are_counted_by_type_and_method_and_never_by_key(bench: Bench) -> None:
    await call(bench, "unheard-of", "add", cents=5)
    text = bench.app.measure().decode()
    assert 'relevo_actor_turns_total{method="add",outcome="done",type="till"}' in text
    assert 'relevo_actor_turn_seconds_count{method="add",type="till"}' in text
    assert 'relevo_actor_activations{type="till"}' in text
    assert "relevo_actor_commit_seconds_count" in text
    assert "unheard-of" not in text
    shown = await bench.wire("viewer").get("actor-figures")
    assert {"placement_group": "default", "host": "alpha", "slots": 4, "moving": 0} in (
        shown["slots"]
    )
    assert "till" in [one["type"] for one in shown["here"]]
