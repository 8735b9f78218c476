"""The official administration client, both flavours of it, against a running host."""

from __future__ import annotations

import functools
import inspect
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from azure.communication.jobrouter import JobRouterAdministrationClient
from azure.communication.jobrouter import models as m
from azure.communication.jobrouter.aio import (
    JobRouterAdministrationClient as AsyncAdministrationClient,
)
from azure.core import MatchConditions
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from tests.http.signer import SIGNING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio

LABELS = {"key1": "QueueKey", "key2": 10, "key3": True, "key4": False, "key5": 10.1}
EQUAL = m.LabelOperator.EQUAL
QUEUE_SELECTOR = m.RouterQueueSelector(key="k", label_operator=EQUAL, value="v")
WORKER_SELECTOR = m.RouterWorkerSelector(
    key="k", label_operator=EQUAL, value="v", expires_after_seconds=10.0, expedite=False
)


class Client:
    """Either flavour, called the same way: `await client.get_queue("q")`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if isinstance(self.inner, AsyncAdministrationClient):
                found = method(*arguments, **options)
                return await found if inspect.isawaitable(found) else found
            return await anyio.to_thread.run_sync(functools.partial(method, *arguments, **options))

        return call

    async def pages(self, name: str, **options: Any) -> list[list[str]]:
        """Return the ids of every page of a list."""
        listed = getattr(self.inner, name)(**options)
        if isinstance(self.inner, AsyncAdministrationClient):
            return [[one.id async for one in page] async for page in listed.by_page()]
        return await anyio.to_thread.run_sync(
            lambda: [[one.id for one in page] for page in listed.by_page()]
        )

    async def refused(self, name: str, *arguments: Any, **options: Any) -> HttpResponseError:
        """Return the error that a call ends in."""
        with pytest.raises(HttpResponseError) as caught:
            await getattr(self, name)(*arguments, **options)
        return caught.value


def told(error: HttpResponseError) -> tuple[int | None, str | None]:
    """Return status and code of an answer, as the client has read them."""
    assert error.error is not None
    return error.status_code, error.error.code


def new(flavour: Any, site: Site, secret: str, **options: Any) -> Any:
    return flavour(site.address.url, AzureKeyCredential(secret), **options)


@pytest.fixture(
    params=[JobRouterAdministrationClient, AsyncAdministrationClient], ids=["sync", "async"]
)
async def client(request: pytest.FixtureRequest, site: Site) -> AsyncIterator[Client]:
    secret = (await site.services.keys.create(SIGNING)).secret
    inner = new(request.param, site, secret)
    async with AsyncExitStack() as stack:
        if isinstance(inner, AsyncAdministrationClient):
            await stack.enter_async_context(inner)
        else:
            stack.callback(inner.close)
        yield Client(inner)


async def test_distribution_policies(client: Client) -> None:
    modes = [
        m.LongestIdleMode(),
        m.RoundRobinMode(min_concurrent_offers=1, max_concurrent_offers=2),
        m.BestWorkerMode(
            scoring_rule=m.ExpressionRouterRule(expression="1"),
            scoring_rule_options=m.ScoringRuleOptions(batch_size=5, descending_order=False),
        ),
    ]
    for mode in modes:
        policy = m.DistributionPolicy(name="n", offer_expires_after_seconds=10.0, mode=mode)
        made = await client.upsert_distribution_policy("d", policy)
        assert (made.id, made.name, made.offer_expires_after_seconds) == ("d", "n", 10.0)
        assert type(made.mode) is type(mode)
        assert made.mode.min_concurrent_offers == 1
        assert made.mode.bypass_selectors is False
        assert made.etag == (await client.get_distribution_policy("d")).etag
    assert made.mode.scoring_rule_options.batch_size == 5
    assert made.mode.scoring_rule_options.scoring_parameters == ["jobLabels", "workerSelectors"]
    assert await client.pages("list_distribution_policies") == [["d"]]
    assert await client.delete_distribution_policy("d") is None
    assert await client.delete_distribution_policy("d") is None
    error = await client.refused("get_distribution_policy", "d")
    assert isinstance(error, ResourceNotFoundError)
    assert (error.reason, told(error)) == ("Not Found", (404, "NotFound"))


async def test_queues(client: Client) -> None:
    await client.upsert_distribution_policy("d", m.DistributionPolicy())
    await client.upsert_exception_policy("e", m.ExceptionPolicy())
    wanted = m.RouterQueue(
        name="n", distribution_policy_id="d", labels=LABELS, exception_policy_id="e"
    )
    made = await client.upsert_queue("8:acs:a_b", wanted)
    assert made.labels == {**LABELS, "Id": "8:acs:a_b"}
    made.labels["key2"] = None
    made.name = "other"
    changed = await client.upsert_queue("8:acs:a_b", made)
    assert changed.name == "other"
    by_keyword = await client.upsert_queue("8:acs:a_b", name="third")
    assert (by_keyword.name, by_keyword.exception_policy_id) == ("third", "e")
    cleared = await client.upsert_queue("8:acs:a_b", {"exceptionPolicyId": None})
    assert cleared.exception_policy_id is None
    assert (await client.get_queue("8:acs:a_b")).labels["Id"] == "8:acs:a_b"
    await client.delete_queue("8:acs:a_b")
    assert isinstance(await client.refused("get_queue", "8:acs:a_b"), ResourceNotFoundError)


QUEUE_ATTACHMENTS = [
    m.StaticQueueSelectorAttachment(queue_selector=QUEUE_SELECTOR),
    m.ConditionalQueueSelectorAttachment(
        condition=m.StaticRouterRule(value=True), queue_selectors=[QUEUE_SELECTOR]
    ),
    m.RuleEngineQueueSelectorAttachment(rule=m.DirectMapRouterRule()),
    m.PassThroughQueueSelectorAttachment(key="k", label_operator=EQUAL),
    m.WeightedAllocationQueueSelectorAttachment(
        allocations=[m.QueueWeightedAllocation(weight=1.0, queue_selectors=[QUEUE_SELECTOR])]
    ),
]
WORKER_ATTACHMENTS = [
    m.StaticWorkerSelectorAttachment(worker_selector=WORKER_SELECTOR),
    m.ConditionalWorkerSelectorAttachment(
        condition=m.ExpressionRouterRule(expression="1 = 1"), worker_selectors=[WORKER_SELECTOR]
    ),
    m.RuleEngineWorkerSelectorAttachment(
        rule=m.FunctionRouterRule(function_uri="https://fake.example/rule")
    ),
    m.PassThroughWorkerSelectorAttachment(key="k", label_operator=EQUAL),
    m.WeightedAllocationWorkerSelectorAttachment(
        allocations=[m.WorkerWeightedAllocation(weight=1.0, worker_selectors=[WORKER_SELECTOR])]
    ),
]


async def test_classification_policies(client: Client) -> None:
    await client.upsert_distribution_policy("d", m.DistributionPolicy())
    await client.upsert_queue("q", m.RouterQueue(distribution_policy_id="d"))
    wanted = m.ClassificationPolicy(
        name="n",
        fallback_queue_id="q",
        queue_selector_attachments=QUEUE_ATTACHMENTS,
        worker_selector_attachments=WORKER_ATTACHMENTS,
        prioritization_rule=m.StaticRouterRule(value=7),
    )
    made = await client.upsert_classification_policy("c", wanted)
    assert made.queue_selector_attachments == QUEUE_ATTACHMENTS
    assert [type(one) for one in made.worker_selector_attachments] == [
        type(one) for one in WORKER_ATTACHMENTS
    ]
    assert made.worker_selector_attachments[0].worker_selector.expedite is False
    again = await client.upsert_classification_policy("c", made)
    assert again.etag == made.etag
    changed = await client.upsert_classification_policy(
        "c", prioritization_rule=m.ExpressionRouterRule(expression="2")
    )
    assert changed.prioritization_rule.expression == "2"
    assert changed.prioritization_rule.language == "powerFx"
    assert changed.fallback_queue_id == "q"
    assert await client.pages("list_classification_policies") == [["c"]]
    await client.delete_classification_policy("c")


async def test_an_empty_classification_policy(client: Client) -> None:
    made = await client.upsert_classification_policy("c", m.ClassificationPolicy())
    assert made.queue_selector_attachments == []
    assert made.prioritization_rule is None


async def test_secrets_are_kept_and_never_answered(client: Client) -> None:
    # J23
    credential = m.FunctionRouterRuleCredential(function_key="hush")
    rule = m.FunctionRouterRule(function_uri="https://fake.example/rule", credential=credential)
    made = await client.upsert_classification_policy(
        "c", m.ClassificationPolicy(prioritization_rule=rule)
    )
    assert type(made.prioritization_rule) is m.FunctionRouterRule
    assert "hush" not in str(made.as_dict())
    webhook = m.WebhookRouterRule(
        webhook_uri="https://w.example",
        authorization_server_uri="https://a.example",
        client_credential=m.OAuth2WebhookClientCredential(client_id="c", client_secret="hush"),
    )
    made = await client.upsert_classification_policy("c", prioritization_rule=webhook)
    assert made.prioritization_rule.client_credential.client_id == "c"
    assert "hush" not in str((await client.get_classification_policy("c")).as_dict())


async def test_exception_policies(client: Client) -> None:
    await client.upsert_distribution_policy("d", m.DistributionPolicy())
    await client.upsert_queue("q", m.RouterQueue(distribution_policy_id="d"))
    await client.upsert_classification_policy("c", m.ClassificationPolicy(fallback_queue_id="q"))
    actions = [
        m.ManualReclassifyExceptionAction(queue_id="q", priority=1),
        m.CancelExceptionAction(note="too long"),
        m.ReclassifyExceptionAction(classification_policy_id="c", labels_to_upsert={"a": 1}),
    ]
    rules = [
        m.ExceptionRule(
            id="length", trigger=m.QueueLengthExceptionTrigger(threshold=1), actions=actions
        ),
        m.ExceptionRule(
            id="wait", trigger=m.WaitTimeExceptionTrigger(threshold_seconds=3600), actions=[]
        ),
    ]
    made = await client.upsert_exception_policy(
        "e", m.ExceptionPolicy(name="n", exception_rules=rules)
    )
    first = made.exception_rules[0]
    assert first.trigger.threshold == 1
    assert [type(one) for one in first.actions] == [type(one) for one in actions]
    assert all(one.id for one in first.actions)
    assert first.actions[0].worker_selectors == []
    assert first.actions[1].disposition_code == "Cancelled"
    assert first.actions[2].labels_to_upsert == {"a": 1}
    again = await client.upsert_exception_policy("e", name="n", exception_rules=rules)
    assert again.etag == made.etag
    replaced = await client.upsert_exception_policy("e", name="n", exception_rules=rules[1:])
    assert [one.id for one in replaced.exception_rules] == ["wait"]
    assert await client.pages("list_exception_policies") == [["e"]]
    await client.delete_exception_policy("e")


async def test_conditions_end_in_the_exceptions_of_the_client(client: Client) -> None:
    policy = m.DistributionPolicy(name="n")

    async def refused(**told: Any) -> HttpResponseError:
        error = await client.refused("upsert_distribution_policy", "d", policy, **told)
        assert error.status_code == 412
        return error

    missing = await refused(match_condition=MatchConditions.IfPresent)
    assert isinstance(missing, ResourceNotFoundError)
    made = await client.upsert_distribution_policy(
        "d", policy, match_condition=MatchConditions.IfMissing
    )
    there = await refused(match_condition=MatchConditions.IfMissing)
    assert isinstance(there, ResourceExistsError)
    changed = await client.upsert_distribution_policy(
        "d", {"name": "x"}, etag=made.etag, match_condition=MatchConditions.IfNotModified
    )
    stale = await refused(etag=made.etag, match_condition=MatchConditions.IfNotModified)
    assert isinstance(stale, ResourceModifiedError)
    now = datetime.now(UTC)
    await refused(if_unmodified_since=now - timedelta(hours=1))
    await client.upsert_distribution_policy(
        "d", policy, if_unmodified_since=now + timedelta(hours=1)
    )
    assert changed.etag != made.etag


async def test_lists_come_in_pages(client: Client) -> None:
    # J16
    for number in range(5):
        await client.upsert_distribution_policy(f"d{number}", m.DistributionPolicy())
    pages = await client.pages("list_distribution_policies", results_per_page=2)
    assert pages == [["d0", "d1"], ["d2", "d3"], ["d4"]]


async def test_what_is_refused(client: Client) -> None:
    wrong = await client.refused("upsert_queue", "q", m.RouterQueue(distribution_policy_id="no"))
    assert told(wrong) == (400, "ReferenceNotFound")
    await client.upsert_distribution_policy("d", m.DistributionPolicy())
    await client.upsert_queue("q", m.RouterQueue(distribution_policy_id="d"))
    used = await client.refused("delete_distribution_policy", "d")
    assert isinstance(used, ResourceExistsError)
    assert told(used) == (409, "InUse")
    bad = m.ClassificationPolicy(prioritization_rule=m.ExpressionRouterRule(expression="1 +"))
    unread = await client.refused("upsert_classification_policy", "c", bad)
    assert told(unread) == (400, "InvalidExpression")


@pytest.mark.parametrize("flavour", [JobRouterAdministrationClient, AsyncAdministrationClient])
async def test_a_wrong_key_is_denied(site: Site, flavour: Any) -> None:
    async with AsyncExitStack() as stack:
        inner = new(flavour, site, "bm90IGEga2V5IG9mIG91cnMsIGJ1dCBsb25nIGVub3VnaA==")
        if isinstance(inner, AsyncAdministrationClient):
            await stack.enter_async_context(inner)
        else:
            stack.callback(inner.close)
        error = await Client(inner).refused("get_queue", "q")
    assert isinstance(error, ClientAuthenticationError)
    assert told(error) == (401, "Denied")
