"""A configuration comes from one server to another, through the official client."""

from __future__ import annotations

import builtins
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import App, settings
from relevo.cli.calling.local_calls import LocalCalls
from relevo.errors import InvalidValue, SettingsError, Unauthenticated, Unavailable
from relevo.http.access.key_model import NewKey
from relevo.http.application import HttpApi
from relevo.http.server import serving
from relevo.http.services import open_services
from relevo.router import importing, official
from relevo.router.cli.importing import OverCalls
from relevo.router.wire import documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.router.importing import Report
    from relevo.testing.databases import TestDatabases

pytestmark = pytest.mark.anyio

FUNCTION = {
    "kind": "function", "functionUri": "https://example.com/score",
    "credential": {"functionKey": "hush-hush"},
}  # fmt: skip
SELECTOR = {"key": "Id", "labelOperator": "equal", "value": "overflow"}
CONFIGURATION: dict[str, dict[str, Any]] = {
    "distributionPolicies/best": {
        "name": "Best", "offerExpiresAfterSeconds": 30.5,
        "mode": {"kind": "bestWorker", "scoringRule": FUNCTION, "maxConcurrentOffers": 2},
    },
    "queues/overflow": {"distributionPolicyId": "best", "labels": {"Region": "eu"}},
    "classificationPolicies/sort": {
        "fallbackQueueId": "overflow",
        "queueSelectorAttachments": [
            {"kind": "conditional", "condition": FUNCTION, "queueSelectors": [SELECTOR]}
        ],
        "prioritizationRule": {"kind": "expression", "expression": "If(job.Vip = true, 9, 1)"},
    },
    # A circle: the queue names the policy, whose actions name the queue.
    "exceptionPolicies/late": {
        "exceptionRules": [
            {
                "id": "late", "trigger": {"kind": "waitTime", "thresholdSeconds": 60},
                "actions": [
                    {"kind": "manualReclassify", "queueId": "overflow", "priority": 7},
                    {"kind": "reclassify", "classificationPolicyId": "sort"},
                ],
            }
        ]
    },
    "queues/main": {"distributionPolicyId": "best", "exceptionPolicyId": "late"},
}  # fmt: skip


class Side:
    """An app on a database of its own; `url` and `secret` lead to it over HTTP."""

    def __init__(self, app: App, url: str, secret: str) -> None:
        self.app = app
        self.url = url
        self.secret = secret

    async def patch(self, path: str, change: dict[str, Any]) -> None:
        kind, _, name = path.partition("/")
        router = self.app.router
        if kind == "workers":
            await router.put_worker(name, change)
        elif kind == "jobs":
            await router.put_job(name, change)
        else:
            await router.policies.patch(kind, name, change)  # type: ignore[arg-type]

    async def shown(self, path: str) -> Any:
        kind, _, name = path.partition("/")
        found = await OverCalls(LocalCalls(self.app)).get(kind, name)  # type: ignore[arg-type]
        return None if found is None else {k: v for k, v in found.items() if k != "etag"}

    async def take(self, source: Side, **options: Any) -> Report:
        async with official.opened(source.url, source.secret) as other:
            return await importing.copy(other, OverCalls(LocalCalls(self.app)), **options)


@asynccontextmanager
async def side(url: str, home: Path) -> AsyncIterator[Side]:
    told = settings.load({"database_url": url, "home": home}, environ={})
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(App(settings=told))
        services = await stack.enter_async_context(open_services(app))
        address = await stack.enter_async_context(serving(HttpApi(services), "127.0.0.1", 0))
        new = NewKey(name="source", kind="signing", roles=("reader",))
        yield Side(app, address.url, (await services.keys.create(new)).secret)


@pytest.fixture
async def sides(
    relevo_databases: TestDatabases, relevo_url: str, tmp_path: Path
) -> AsyncIterator[tuple[Side, Side]]:
    """Where it is, and where it shall go."""
    url = relevo_databases.create()
    async with side(relevo_url, tmp_path / "old") as old, side(url, tmp_path / "new") as new:
        yield old, new
    relevo_databases.drop(url)


@pytest.fixture
async def configured(sides: tuple[Side, Side]) -> tuple[Side, Side]:
    for path in (
        "distributionPolicies/best", "queues/overflow", "classificationPolicies/sort",
        "exceptionPolicies/late", "queues/main",
    ):  # fmt: skip
        await sides[0].patch(path, CONFIGURATION[path])
    return sides


async def test_a_configuration_arrives_whole(configured: tuple[Side, Side]) -> None:
    old, new = configured
    report = await new.take(old)
    assert report.complete
    assert report.counts == {
        "distributionPolicies": {"created": 1}, "queues": {"created": 2},
        "classificationPolicies": {"created": 1}, "exceptionPolicies": {"created": 1},
    }  # fmt: skip
    for path in CONFIGURATION:
        shown = await old.shown(path)
        assert await new.shown(path) == shown


async def test_a_second_import_changes_nothing(configured: tuple[Side, Side]) -> None:
    old, new = configured
    await new.take(old)
    before = await new.app.router.policies.get("queues", "main")
    report = await new.take(old)
    assert {outcome for each in report.counts.values() for outcome in each} == {"unchanged"}
    assert (await new.app.router.policies.get("queues", "main")).etag == before.etag  # J15


async def test_what_has_changed_is_made_like_the_source(configured: tuple[Side, Side]) -> None:
    old, new = configured
    await new.take(old)
    await old.patch("queues/overflow", {"labels": {"Region": None, "Floor": 2}, "name": "O"})
    await old.patch("distributionPolicies/best", {"mode": {"kind": "roundRobin"}})
    report = await new.take(old)
    assert report.counts["queues"] == {"updated": 1, "unchanged": 1}
    assert report.counts["distributionPolicies"] == {"updated": 1}
    for path in ("queues/overflow", "distributionPolicies/best"):
        assert await new.shown(path) == await old.shown(path)


async def test_secrets_are_named_and_those_set_anew_stay(configured: tuple[Side, Side]) -> None:
    old, new = configured
    report = await new.take(old)
    assert [(one.id, one.place) for one in report.secrets] == [
        ("best", "/mode/scoringRule"), ("sort", "/queueSelectorAttachments/0/condition"),
    ]  # fmt: skip
    assert "functionKey" in report.secrets[0].set
    assert "hush-hush" not in str(report)  # J23
    policies = new.app.router.policies
    again = {"mode": {"scoringRule": {"credential": {"functionKey": "new"}}}}
    await policies.patch("distributionPolicies", "best", again)
    rule = {**FUNCTION, "credential": {"functionKey": "new"}}
    attachment = {"kind": "conditional", "condition": rule, "queueSelectors": [SELECTOR]}
    change = {"queueSelectorAttachments": [attachment]}
    await policies.patch("classificationPolicies", "sort", change)
    await new.take(old)
    for kind, name in (("distributionPolicies", "best"), ("classificationPolicies", "sort")):
        stored = await policies.get(kind, name)  # type: ignore[arg-type]
        assert documents.secrets_in(stored.document), kind
        assert "new" in str(await policies.opened(stored))


async def test_a_dry_run_writes_nothing(configured: tuple[Side, Side]) -> None:
    old, new = configured
    await old.patch("workers/ana", {"capacity": 2})
    report = await new.take(old, workers=True, jobs=True, dry_run=True)
    assert report.dry_run
    assert report.counts["queues"] == {"created": 2}
    assert report.counts["workers"] == {"created": 1}
    assert await new.shown("queues/main") is None
    assert await new.shown("workers/ana") is None


async def test_workers_come_deregistered_and_are_left_registered(
    configured: tuple[Side, Side],
) -> None:
    old, new = configured
    channel = {"channelId": "voice", "capacityCostPerJob": 50}
    await old.patch(
        "workers/8:acs:ana/x",
        {
            "queues": ["main"], "capacity": 100, "channels": [channel],
            "labels": {"English": 7}, "availableForOffers": True,
        },
    )  # fmt: skip
    await new.take(old, workers=True)
    found = await new.app.router.get_worker("8:acs:ana/x")
    assert (found.state, found.capacity, found.labels["English"]) == ("inactive", 100, 7)
    await new.app.router.update_worker(
        "8:acs:ana/x", available_for_offers=True, max_concurrent_offers=3
    )
    await old.patch("workers/8:acs:ana/x", {"capacity": 50})
    report = await new.take(old, workers=True)
    assert report.counts["workers"] == {"updated": 1}
    found = await new.app.router.get_worker("8:acs:ana/x")
    assert (found.state, found.capacity, found.max_concurrent_offers) == ("active", 50, 3)


async def test_jobs_that_nobody_has_come_in_their_order(configured: tuple[Side, Side]) -> None:
    old, new = configured
    selector = {"key": "English", "labelOperator": "greaterThan", "value": 5}
    await old.patch(
        "jobs/first",
        {
            "channelId": "voice", "queueId": "main", "priority": 3, "labels": {"Vip": True},
            "requestedWorkerSelectors": [selector], "notes": [{"message": "hello"}],
        },
    )  # fmt: skip
    await old.patch("jobs/second", {"channelId": "voice", "queueId": "main", "priority": 3})
    later = {"kind": "scheduleAndSuspend", "scheduleAt": "2099-01-01T00:00:00Z"}
    await old.patch("jobs/later", {"channelId": "v", "queueId": "main", "matchingMode": later})
    await old.patch("jobs/gone", {"channelId": "voice", "queueId": "main"})
    await old.app.router.cancel_job("gone")
    report = await new.take(old, jobs=True)
    assert report.counts["jobs"] == {"created": 3}
    copied, there = await new.shown("jobs/first"), await old.shown("jobs/first")
    same = ("channelId", "queueId", "priority", "labels", "notes", "requestedWorkerSelectors")
    assert {name: copied[name] for name in same} == {name: there[name] for name in same}
    assert (await new.app.router.position("second")).position == 2
    assert (await new.shown("jobs/later"))["matchingMode"] == later
    await new.app.router.update_job("first", priority=9)
    again = await new.take(old, jobs=True)
    assert again.counts["jobs"] == {"unchanged": 3}
    assert (await new.app.router.get_job("first")).priority == 9


async def test_a_job_that_a_worker_has_is_left_at_the_source(
    configured: tuple[Side, Side],
) -> None:
    old, new = configured
    await old.patch("distributionPolicies/best", {"mode": {"kind": "longestIdle"}})
    channel = {"channelId": "voice", "capacityCostPerJob": 1}
    worker = {"queues": ["main"], "channels": [channel], "availableForOffers": True}
    async with old.app.host():
        await old.patch("workers/ana", worker)
        await old.patch("jobs/taken", {"channelId": "voice", "queueId": "main"})
        page = await old.app.router.watching.read("ana", None, 20.0)
        await old.app.router.accept_offer("ana", str(page.items[0].offer_id))
    report = await new.take(old, jobs=True)
    assert report.complete
    assert [(one.id, one.outcome) for one in report.not_taken] == [("taken", "left out")]
    assert await new.shown("jobs/taken") is None


async def test_what_is_refused_is_told_and_the_rest_goes_on(
    configured: tuple[Side, Side],
) -> None:
    class Odd:
        """A source with something that is not known here."""

        async def each(self, collection: str) -> AsyncIterator[dict[str, Any]]:
            if collection == "distributionPolicies":
                yield {"id": "odd", "mode": {"kind": "throwDice"}}
                yield {"id": "good"}
            if collection == "queues":
                yield {"id": "lost", "distributionPolicyId": "odd"}
                yield {"id": "q", "distributionPolicyId": "good", "exceptionPolicyId": "none"}

    _, new = configured
    seen: list[str] = []
    report = await importing.copy(
        Odd(), OverCalls(LocalCalls(new.app)), notify=lambda one: seen.append(one.id)
    )
    assert not report.complete
    assert [one.id for one in report.not_taken] == ["odd", "lost", "q"]
    assert "odd" in (report.not_taken[1].reason or "")
    assert sorted(seen) == ["good", "lost", "odd", "q"]
    assert await new.shown("distributionPolicies/good") is not None


async def test_a_wrong_key_an_absent_service_and_nonsense_are_told_apart(
    sides: tuple[Side, Side],
) -> None:
    old, new = sides
    wrong = Side(old.app, old.url, "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd28=")
    with pytest.raises(Unauthenticated):
        await new.take(wrong)
    for url, key in (("example.com", old.secret), (old.url, "endpoint=x;accesskey=y")):
        with pytest.raises(InvalidValue):
            await new.take(Side(old.app, url, key))


async def test_a_service_that_is_not_there_can_be_tried_again(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    import azure.core.pipeline.policies as policies

    monkeypatch.setattr(policies.AsyncRetryPolicy, "is_exhausted", lambda *_: True)
    old, new = sides
    with pytest.raises(Unavailable):
        await new.take(Side(old.app, "http://127.0.0.1:9", old.secret))


async def test_without_the_official_client_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("azure"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match="router-import"):
        async with official.opened("https://example.com", "a2V5"):
            pass


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), LEAVES.filter(lambda one: one is not None)),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


@given(old=OBJECTS, new=OBJECTS)
def test_a_difference_makes_the_old_like_the_new(old: Any, new: Any) -> None:
    merged = documents.merged("distributionPolicies", old, importing.difference(old, new))
    assert merged == new
    assert importing.difference(new, new) == {}
