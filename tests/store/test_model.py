"""A container behaves like a dictionary with versions, whatever is done to it, in any order."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from relevo.errors import ConditionNotMet, InvalidValue, ItemExists, NotFound, RelevoError
from relevo.store import patch

if TYPE_CHECKING:
    from relevo.store import Container, Item
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
numbers = count()
Condition = Literal["none", "any", "current", "old"]


class Command(Struct, frozen=True):
    kind: Literal["create", "upsert", "replace", "delete", "patch", "read"]
    key: tuple[str, str]
    body: dict[str, Any]
    operations: list[dict[str, Any]]
    condition: Condition


operation = st.one_of(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "set", "replace"]), "path": st.sampled_from(["/n", "/l/-"]),
         "value": st.integers(0, 3)}
    ),
    st.fixed_dictionaries({"op": st.just("incr"), "path": st.just("/n"), "value": st.just(1)}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": st.sampled_from(["/n", "/l/0"])}),
    st.fixed_dictionaries({"op": st.just("move"), "from": st.just("/n"), "path": st.just("/m")}),
)  # fmt: skip
command = st.builds(
    Command,
    kind=st.sampled_from(["create", "upsert", "upsert", "replace", "delete", "patch", "read"]),
    key=st.tuples(st.sampled_from(["Vigo", "Lugo"]), st.sampled_from(["1", "2"])),
    body=st.dictionaries(st.sampled_from(["n", "m"]), st.integers(0, 3), max_size=2).map(
        lambda body: {**body, "l": []}
    ),
    operations=st.lists(operation, min_size=1, max_size=3),
    condition=st.sampled_from(["none", "none", "any", "current", "old"]),
)


class Model:
    """What a container should be, and what its log should say."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], tuple[dict[str, Any], str]] = {}
        self.etags: dict[tuple[str, str], list[str]] = {}
        self.log: list[tuple[str, tuple[str, str], dict[str, Any] | None]] = []

    def etag(self, key: tuple[str, str], condition: Condition) -> str | None:
        """The tag that a caller sends; one that never fits stands in for what there is not."""
        match condition:
            case "none":
                return None
            case "any":
                return "*"
            case "current":
                return self.items[key][1] if key in self.items else '"none"'
            case "old":
                return next(iter(self.etags.get(key, [])[:-1]), '"none"')

    def judge(self, told: Command, etag: str | None) -> type[RelevoError] | dict[str, Any] | None:
        """The error that a command should end in, or the body it should leave."""
        there = self.items.get(told.key)
        city, name = told.key
        body = {**told.body, "id": name, "city": city}
        if told.kind == "create":
            return ItemExists if there else body
        if told.kind != "upsert" and there is None:
            return NotFound
        fits = there is not None and etag in ("*", there[1])
        if etag is not None and told.kind != "read" and not fits:
            return ConditionNotMet
        if told.kind == "patch":
            assert there is not None
            try:
                return patch.apply(there[0], patch.checked(told.operations))
            except InvalidValue:
                return InvalidValue
        if told.kind == "read":
            assert there is not None
            return there[0]
        return None if told.kind == "delete" else body

    def note(self, told: Command, left: dict[str, Any] | None, etag: str | None) -> None:
        was = told.key in self.items
        if told.kind == "read":
            return
        if left is None or etag is None:
            del self.items[told.key]
            self.log.append(("delete", told.key, None))
            return
        self.items[told.key] = (left, etag)
        self.etags.setdefault(told.key, []).append(etag)
        self.log.append(("replace" if was else "create", told.key, left))


async def perform(
    orders: Container[dict[str, Any]], told: Command, etag: str | None
) -> Item[dict[str, Any]] | None:
    city, name = told.key
    body = {**told.body, "id": name, "city": city}
    match told.kind:
        case "create":
            return await orders.create(body)
        case "upsert":
            return await orders.upsert(body, etag)
        case "replace":
            return await orders.replace(body, etag)
        case "patch":
            return await orders.patch(name, city, told.operations, etag)
        case "read":
            return await orders.read(name, city)
        case "delete":
            await orders.delete(name, city, etag)
            return None


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(command, min_size=1, max_size=25))
async def test_a_container_is_a_dictionary_with_versions(  # F2, F3, F4
    world: World, commands: list[Command]
) -> None:
    name = f"m{next(numbers)}"
    orders = world.store.container(name, "/city", ranges=2, versions=timedelta(days=1))
    model = Model()
    for told in commands:
        etag = model.etag(told.key, told.condition)
        expected = model.judge(told, etag)
        if isinstance(expected, type):
            with pytest.raises(expected):
                await perform(orders, told, etag)
            continue
        left = await perform(orders, told, etag)
        assert (left and left.body) == expected
        model.note(told, expected, left.etag if left else None)
    stored = {(one.body["city"], one.id): (one.body, one.etag) async for one in orders.query()}
    assert stored == model.items
    log = await world.versions(name)
    for key in {key for _, key, _ in model.log}:
        own = [v for v in log if (msgspec.json.decode(v.pk)[0], v.id) == key]
        assert [
            (v.operation, key, None if v.body is None else msgspec.json.decode(v.body)) for v in own
        ] == [entry for entry in model.log if entry[1] == key]
    assert len(log) == len(model.log)
