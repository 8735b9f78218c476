"""Policies and queues in the database: conditions, references, deletion, versions, secrets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from relevo import limits
from relevo.errors import (
    ConditionNotMet,
    InUse,
    InvalidJson,
    InvalidValue,
    NotFound,
    ReferenceNotFound,
    RelevoError,
    SettingsError,
    TooLarge,
)
from relevo.kernel.events import Catalogue, EventLog
from relevo.kernel.expressions import powerfx
from relevo.kernel.part import Connection
from relevo.kernel.postgres.wakeups import Wakeups
from relevo.kernel.sealing import MasterKey
from relevo.router import events
from relevo.router.administration import Administration
from relevo.router.commands import Conditions, http_date
from relevo.router.wire.representations import resource
from tests.support.watchdog import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.postgres.database import Database

pytestmark = pytest.mark.anyio

D: Final = "distributionPolicies"
C: Final = "classificationPolicies"
E: Final = "exceptionPolicies"
Q: Final = "queues"
FUNCTION = {"kind": "function", "functionUri": "https://f", "credential": {"functionKey": "hush"}}


class Key:
    """A sealer with a key that is there."""

    def __init__(self, byte: bytes = b"m") -> None:
        self.asked = 0
        self._key = MasterKey(byte * 32)

    async def key(self) -> MasterKey:
        self.asked += 1
        return self._key


class Bundle:
    """The administration and what it works on."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self.database = database
        self.log = EventLog(Connection(database, wakeups), Catalogue())
        self.key = Key()
        self.of = Administration(database, self.log, self.key)

    async def make(self, kind: Any, of_id: str, /, **members: Any) -> Any:
        return await self.of.patch(kind, of_id, members)

    async def queue(self, of_id: str = "q", /, **members: Any) -> Any:
        await self.make(D, "d")
        return await self.make(Q, of_id, distributionPolicyId="d", **members)

    async def names(self, kind: Any) -> list[str]:
        return [one.id for one in (await self.of.page(kind, 0, 100)).items]

    async def hints(self) -> list[str]:
        page = await self.log.read()
        return [each.data["resource"] for each in page.events if each.type == events.TOUCHED]


@pytest.fixture
async def bundle(database: Database) -> AsyncIterator[Bundle]:
    wakeups = Wakeups(database)
    try:
        yield Bundle(database, wakeups)
    finally:
        await wakeups.close()


async def test_a_policy_is_created_changed_read_and_deleted(bundle: Bundle) -> None:
    made = await bundle.make(D, "d", name="one")
    assert made.created
    changed = await bundle.make(D, "d", name="two")
    assert (changed.created, changed.document["name"]) == (False, "two")
    assert changed.etag != made.etag
    assert changed.modified_at >= made.modified_at
    found = await bundle.of.get(D, "d")
    assert (found.etag, found.document) == (changed.etag, changed.document)
    await bundle.of.delete(D, "d")
    await bundle.of.delete(D, "d")
    with pytest.raises(NotFound, match="distribution policy 'd'"):
        await bundle.of.get(D, "d")
    assert await bundle.hints() == ["distributionPolicies/d"] * 3


@pytest.mark.parametrize(
    "again",
    [{}, {"name": "n"}, {"mode": {"kind": "LongestIdle"}}, {"labels": {}}, {"id": "other"}],
)
async def test_a_patch_that_changes_nothing_leaves_tag_and_time(
    bundle: Bundle, again: dict[str, Any]
) -> None:
    # J15
    made = await bundle.make(D, "d", name="n")
    same = await bundle.make(D, "d", **again)
    assert (same.etag, same.modified_at, same.created) == (made.etag, made.modified_at, False)
    assert await bundle.hints() == ["distributionPolicies/d"]


@pytest.mark.parametrize("value", [1e22, 1e300, 2**70, 0.1, -0.0, 7.0, "ä\U0001f600"])
async def test_any_label_that_is_sent_twice_is_the_same(bundle: Bundle, value: Any) -> None:
    # J15
    made = await bundle.queue(labels={"n": value})
    assert type(value)(made.document["labels"]["n"]) == value
    again = await bundle.queue(labels={"n": value})
    assert again.etag == made.etag


async def test_a_resource_made_again_has_another_tag(bundle: Bundle) -> None:
    # J15: a condition from a former life never writes.
    first = await bundle.make(D, "d")
    await bundle.of.delete(D, "d")
    second = await bundle.make(D, "d")
    assert second.etag != first.etag
    with pytest.raises(ConditionNotMet):
        await bundle.of.patch(D, "d", {"name": "x"}, Conditions(if_match=first.etag))


async def test_conditions_hold_or_nothing_is_written(bundle: Bundle) -> None:
    # J14, J15
    async def refused(told: Conditions, name: str = "d", change: Any = b"not even JSON") -> None:
        with pytest.raises(ConditionNotMet):
            await bundle.of.patch(D, name, change, told)

    await refused(Conditions(if_match="*"))
    await refused(Conditions(if_match='"1"'))
    made = await bundle.of.patch(D, "d", {}, Conditions(if_none_match="*"))
    await refused(Conditions(if_none_match="*"))
    await refused(Conditions(if_none_match=made.etag))
    await refused(Conditions(if_match='"other", W/"x"'))
    await refused(Conditions(if_match=f"W/{made.etag}"))
    early = http_date("Wed, 15 Nov 2023 10:00:00 GMT", "x")
    await refused(Conditions(if_unmodified_since=early))
    assert (await bundle.of.get(D, "d")).etag == made.etag
    at = made.modified_at.replace(microsecond=0)
    fine = Conditions(if_match=f'"other", {made.etag}', if_unmodified_since=at, if_none_match='"x"')
    changed = await bundle.of.patch(D, "d", {"name": "x"}, fine)
    assert changed.etag != made.etag
    assert (await bundle.of.patch(D, "d", {}, Conditions(if_match="*"))).etag == changed.etag
    await bundle.of.patch(D, "new", {}, Conditions(if_unmodified_since=early, if_none_match="*"))


async def test_of_two_with_one_tag_one_writes(bundle: Bundle) -> None:
    # J15
    made = await bundle.make(D, "d")

    async def write(name: str) -> bool:
        try:
            await bundle.of.patch(D, "d", {"name": name}, Conditions(if_match=made.etag))
        except ConditionNotMet:
            return False
        return True

    assert sum(await asyncio.gather(*(write(str(n)) for n in range(8)))) == 1


async def test_of_many_who_create_one_does(bundle: Bundle) -> None:
    async def create(name: str) -> bool:
        return bool((await bundle.of.patch(D, "d", {"name": name})).created)

    assert sum(await asyncio.gather(*(create(str(n)) for n in range(8)))) == 1


@pytest.mark.parametrize(
    ("kind", "members", "pointer"),
    [
        (Q, {"distributionPolicyId": "nope"}, "/distributionPolicyId"),
        (Q, {"distributionPolicyId": "d", "exceptionPolicyId": "d"}, "/exceptionPolicyId"),
        (C, {"fallbackQueueId": "nope"}, "/fallbackQueueId"),
        (
            E,
            {
                "exceptionRules": [
                    {
                        "id": "r",
                        "trigger": {"kind": "queueLength", "threshold": 1},
                        "actions": [
                            {"kind": "cancel"},
                            {"kind": "reclassify", "classificationPolicyId": "nope"},
                        ],
                    }
                ]
            },
            "/exceptionRules/0/actions/1/classificationPolicyId",
        ),
    ],
)
async def test_a_reference_to_nothing_is_refused(
    bundle: Bundle, kind: Any, members: dict[str, Any], pointer: str
) -> None:
    # J14
    await bundle.make(D, "d")
    with pytest.raises(ReferenceNotFound) as caught:
        await bundle.make(kind, "x", **members)
    assert caught.value.pointer == pointer
    assert await bundle.names(kind) == []
    assert await bundle.hints() == ["distributionPolicies/d"]


@pytest.mark.parametrize(
    "change",
    [b"{", b"[]", b'{"name": 5}', b'{"mode": {"kind": "x"}}', b'{"name": "\\u0000"}'],
)
async def test_a_refused_patch_changes_nothing(bundle: Bundle, change: bytes) -> None:
    # J14
    made = await bundle.make(D, "d", name="n")
    with pytest.raises(InvalidValue) as caught:
        await bundle.of.patch(D, "d", change)
    assert isinstance(caught.value, InvalidJson) == (change == b"{")
    assert (await bundle.of.get(D, "d")).etag == made.etag


async def insert_job(database: Database, *, queue: str | None, policy: str | None = None) -> None:
    await database.write(
        "insert into relevo.router_job (id, version, created_at, modified_at, status, channel_id,"
        " queue_id, policy_id, priority, mode) values ('j', 1, now(), now(), 'queued', 'c', $1, $2,"
        " 1, 'queueAndMatch')",
        queue,
        policy,
    )


async def test_what_is_used_is_not_deleted(bundle: Bundle) -> None:
    async def in_use(kind: Any, name: str, by: str) -> None:
        with pytest.raises(InUse, match=by):
            await bundle.of.delete(kind, name)
        assert name in await bundle.names(kind)

    await bundle.make(E, "e")
    await bundle.queue("q", exceptionPolicyId="e")
    await in_use(D, "d", "queue 'q'")
    await in_use(E, "e", "queue 'q'")
    await bundle.make(C, "c", fallbackQueueId="q")
    await in_use(Q, "q", "classification policy 'c'")
    selector = {"key": "Id", "labelOperator": "equal", "value": "q"}
    by_label = [{"kind": "static", "queueSelector": selector}]
    await bundle.make(C, "c", fallbackQueueId=None, queueSelectorAttachments=by_label)
    await in_use(Q, "q", "classification policy 'c'")
    reclassify = {"kind": "reclassify", "classificationPolicyId": "c"}
    trigger = {"kind": "waitTime", "thresholdSeconds": 1}
    rule = {"id": "r", "trigger": trigger, "actions": [reclassify]}
    await bundle.make(E, "e", exceptionRules=[rule])
    await in_use(C, "c", "exception policy 'e'")
    await bundle.make(E, "e", exceptionRules=None)
    await insert_job(bundle.database, queue="q", policy="c")
    await in_use(C, "c", "job 'j'")
    await bundle.make(C, "c", queueSelectorAttachments=[])
    await in_use(Q, "q", "job 'j'")
    await bundle.database.write("update relevo.router_job set ended_at = now()")
    await bundle.of.delete(C, "c")
    await bundle.of.delete(Q, "q")
    await bundle.of.delete(E, "e")
    await bundle.of.delete(D, "d")


async def test_nothing_comes_to_refer_to_what_is_being_deleted(bundle: Bundle) -> None:
    async def attempt(call: Any) -> bool:
        try:
            await call
        except (InUse, ReferenceNotFound):
            return False
        return True

    for number in range(10):
        await bundle.make(D, "d")
        made, gone = await asyncio.gather(
            attempt(bundle.make(Q, f"q{number}", distributionPolicyId="d")),
            attempt(bundle.of.delete(D, "d")),
        )
        assert made != gone, "the queue is there and its policy, or neither"
        await bundle.of.delete(Q, f"q{number}")


async def test_pages_hold_each_that_was_there_throughout_once(bundle: Bundle) -> None:
    # J16
    for number in range(7):
        await bundle.make(D, f"d{number}")
    seen: list[str] = []
    after = 0
    while True:
        page = (await bundle.of.page(D, after, 2)).items
        if not page:
            break
        seen += [one.id for one in page]
        after = page[-1].number
        if len(seen) == 2:
            await bundle.of.delete(D, "d0")
            await bundle.of.delete(D, "d3")
            await bundle.make(D, "late")
    assert seen == ["d0", "d1", "d2", "d4", "d5", "d6", "late"]


async def test_secrets_lie_sealed_and_are_kept_when_absent(bundle: Bundle) -> None:
    # J23
    made = await bundle.make(C, "c", prioritizationRule=FUNCTION)
    text = await bundle.database.fetchval("select body::text from relevo.router_resource")
    assert "hush" not in text
    assert "hush" not in str(made.document)
    assert "hush" not in str(resource(made))
    assert resource(made)["prioritizationRule"]["credential"] == {}
    renamed = await bundle.make(C, "c", name="n")
    back = await bundle.of.patch(C, "c", resource(renamed))
    assert back.etag == renamed.etag, "read and sent back, it is the same"
    same = await bundle.make(C, "c", prioritizationRule=FUNCTION)
    assert same.etag == renamed.etag, "the same secret is no change"
    assert (await bundle.of.opened(same))["prioritizationRule"] == FUNCTION
    await bundle.make(C, "c", prioritizationRule={"credential": {"functionKey": None}})
    without = await bundle.of.opened(await bundle.of.get(C, "c"))
    assert without["prioritizationRule"]["credential"] == {}


async def test_a_sealed_secret_of_one_policy_is_none_of_another(bundle: Bundle) -> None:
    await bundle.make(C, "a", prioritizationRule=FUNCTION)
    await bundle.database.write(
        "insert into relevo.router_resource (kind, id, body)"
        " select kind, 'b', body from relevo.router_resource"
    )
    with pytest.raises(SettingsError):
        await bundle.of.opened(await bundle.of.get(C, "b"))


async def test_the_key_is_not_asked_for_without_secrets(bundle: Bundle) -> None:
    await bundle.queue(labels={"functionKey": "a label"})
    assert bundle.key.asked == 0


def long_rule(number: int) -> dict[str, Any]:
    """A rule of the largest size that takes long to read."""
    head = f"{number}"
    text = head + "+1" * ((limits.EXPRESSION_BYTES_MAX - len(head)) // 2)
    return {"kind": "expression", "expression": text}


def rules(numbers: range) -> list[dict[str, Any]]:
    return [{"kind": "ruleEngine", "rule": long_rule(number)} for number in numbers]


async def test_rules_are_read_once_before_the_lock_and_hold_up_nobody(bundle: Bundle) -> None:
    seen = powerfx._compiled_long.cache_info
    before, begun = seen().misses, asyncio.Event()

    async def occupy(release: asyncio.Event) -> None:
        async with bundle.database.transaction() as tx:
            await tx.execute("select relevo.lock_router_resources()")
            begun.set()
            await release.wait()

    release = asyncio.Event()
    with watching() as watched:
        async with asyncio.TaskGroup() as group:
            group.create_task(occupy(release))
            await begun.wait()
            patch = group.create_task(
                bundle.make(C, "c", queueSelectorAttachments=rules(range(1, 5)))
            )
            while seen().misses < before + 4:  # although another one has the lock
                await asyncio.sleep(0.01)
            assert not patch.done()
            release.set()
    watched.assert_never_held()
    assert (await patch).created
    assert seen().misses == before + 4


async def test_the_expressions_of_a_policy_have_a_bound_together(bundle: Bundle) -> None:
    most = limits.EXPRESSION_POLICY_BYTES_MAX // limits.EXPRESSION_BYTES_MAX
    with pytest.raises(TooLarge, match=r"bytes together and may have 65,536"):
        await bundle.make(C, "c", queueSelectorAttachments=rules(range(10, 11 + most)))
    assert await bundle.names(C) == []


async def test_changes_of_one_policy_by_many_are_all_made(bundle: Bundle) -> None:
    await bundle.queue()
    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(bundle.of.patch(Q, "q", {"labels": {f"k{number}": number}}))
    found = await bundle.of.get(Q, "q")
    assert found.document["labels"] == {f"k{number}": number for number in range(12)}
    assert found.version == 13


async def test_a_queue_answers_its_id_as_a_label(bundle: Bundle) -> None:
    made = await bundle.queue("mail", labels={"Id": "no", "a": 1})
    assert made.document["labels"] == {"a": 1}
    assert resource(made)["labels"] == {"a": 1, "Id": "mail"}


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "\x85"])
async def test_ids_have_bounds(bundle: Bundle, name: str) -> None:
    with pytest.raises(InvalidValue):
        await bundle.make(D, name)


@pytest.mark.parametrize("name", ["8:acs:a_b", "a/b", "ä" * 256, "\U0001f600" * 256, " ", "a b"])
async def test_ids_are_what_callers_like(bundle: Bundle, name: str) -> None:
    assert (await bundle.make(D, name)).id == name
    assert await bundle.hints() == [f"distributionPolicies/{name}"]


def test_dates_of_headers() -> None:
    assert http_date(None, "x") is None
    for text in ("yesterday", "", "Wed, 99 Nov 2023 10:00:00 GMT"):
        with pytest.raises(RelevoError):
            http_date(text, "If-Unmodified-Since")
    assert msgspec.json.encode(http_date("Wed, 15 Nov 2023 10:00:00 GMT", "x")) == (
        b'"2023-11-15T10:00:00Z"'
    )
