"""Distribution and classification policies, queues, and their parts: rules, attachments, modes.

The structs have the form of the wire. Types describe single values;
`check` tests conditions between values, and raises with a pointer at the fault.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from relevo import limits
from relevo.errors import InvalidExpression, InvalidValue
from relevo.kernel.expressions import powerfx
from relevo.kernel.labels import Operator
from relevo.router.core.selectors import QueueSelector, WorkerSelector
from relevo.router.wire.documents import (
    check_labels,
    check_uri,
)

Id = Annotated[str, Meta(min_length=1, max_length=limits.ROUTER_ID_LENGTH_MAX)]
Text = Annotated[str, Meta(max_length=limits.ROUTER_TEXT_LENGTH_MAX)]
Uri = Annotated[str, Meta(max_length=limits.ROUTER_URI_LENGTH_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=limits.ROUTER_LABEL_KEY_LENGTH_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=limits.ROUTER_SECONDS_MAX)]
Offers = Annotated[int, Meta(ge=1, le=limits.ROUTER_CONCURRENT_OFFERS_MAX)]
Weight = Annotated[float, Meta(ge=0, le=1_000_000)]
QueueSelectors = Annotated[tuple[QueueSelector, ...], Meta(max_length=limits.ROUTER_SELECTORS_MAX)]
WorkerSelectors = Annotated[
    tuple[WorkerSelector, ...], Meta(max_length=limits.ROUTER_SELECTORS_MAX)
]
Labels = dict[str, Any]
_ALLOCATIONS: Final = Meta(max_length=limits.ROUTER_ATTACHMENTS_MAX)


class DocumentPart(Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object of the router's vocabulary."""

    def check(self, at: str) -> None:
        """Raise the narrowest error if the values contradict; `at` points here."""


class _Kind(DocumentPart, frozen=True, kw_only=True, tag_field="kind"):
    """An object whose type is its `kind`."""


class StaticRule(_Kind, frozen=True, kw_only=True, tag="static"):
    """Always the same value."""

    value: Any = None


class ExpressionRule(_Kind, frozen=True, kw_only=True, tag="expression"):
    """A value computed from labels."""

    expression: str
    language: Literal["powerFx"] = "powerFx"

    def check(self, at: str) -> None:
        """Raise `InvalidExpression` if it cannot be parsed; the result is cached."""
        try:
            powerfx.compiled(self.expression)
        except InvalidExpression as error:
            raise InvalidExpression(
                error.message, pointer=f"{at}/expression", line=error.line, column=error.column
            ) from None


class DirectMapRule(_Kind, frozen=True, kw_only=True, tag="directMap"):
    """The labels themselves."""


class FunctionCredential(DocumentPart, frozen=True, kw_only=True):
    """The credential of a function: its own key, or an application's."""

    function_key: Text | None = None
    app_key: Text | None = None
    client_id: Text | None = None

    def __repr__(self) -> str:
        return f"FunctionCredential(client_id={self.client_id!r}, …)"


class FunctionRule(_Kind, frozen=True, kw_only=True, tag="function"):
    """A value that a function of the user gives."""

    function_uri: Uri
    credential: FunctionCredential | None = None

    def check(self, at: str) -> None:
        """Refuse a text that is no URL."""
        check_uri(self.function_uri, f"{at}/functionUri")


class WebhookCredential(DocumentPart, frozen=True, kw_only=True):
    """The credential for a webhook's token."""

    client_id: Text | None = None
    client_secret: Text | None = None

    def __repr__(self) -> str:
        return f"WebhookCredential(client_id={self.client_id!r}, …)"


class WebhookRule(_Kind, frozen=True, kw_only=True, tag="webhook"):
    """A value that a webhook of the user gives, behind OAuth2 if it has an authorization server."""

    webhook_uri: Uri | None = None
    authorization_server_uri: Uri | None = None
    client_credential: WebhookCredential | None = None

    def check(self, at: str) -> None:
        """Refuse a text that is no URL."""
        check_uri(self.webhook_uri, f"{at}/webhookUri")
        check_uri(self.authorization_server_uri, f"{at}/authorizationServerUri")


RouterRule: TypeAlias = StaticRule | ExpressionRule | DirectMapRule | FunctionRule | WebhookRule


class StaticQueueAttachment(_Kind, frozen=True, kw_only=True, tag="static"):
    """Always this selector."""

    queue_selector: QueueSelector


class ConditionalQueueAttachment(_Kind, frozen=True, kw_only=True, tag="conditional"):
    """These selectors if the condition holds."""

    condition: RouterRule
    queue_selectors: QueueSelectors


class PassThroughQueueAttachment(_Kind, frozen=True, kw_only=True, tag="passThrough"):
    """A selector whose value is a label of the job."""

    key: Key
    label_operator: Operator


class RuleEngineQueueAttachment(_Kind, frozen=True, kw_only=True, tag="ruleEngine"):
    """The selectors that a rule gives."""

    rule: RouterRule


class QueueAllocation(DocumentPart, frozen=True, kw_only=True):
    """A share of the jobs, and the selectors that they get."""

    weight: Weight
    queue_selectors: QueueSelectors


class WeightedQueueAttachment(_Kind, frozen=True, kw_only=True, tag="weightedAllocation"):
    """The selectors of one allocation, drawn by weight."""

    allocations: Annotated[tuple[QueueAllocation, ...], _ALLOCATIONS]

    def check(self, at: str) -> None:
        """Refuse weights that are all 0."""
        _check_weights([allocation.weight for allocation in self.allocations], at)


QueueAttachment: TypeAlias = (
    StaticQueueAttachment
    | ConditionalQueueAttachment
    | PassThroughQueueAttachment
    | RuleEngineQueueAttachment
    | WeightedQueueAttachment
)


class StaticWorkerAttachment(_Kind, frozen=True, kw_only=True, tag="static"):
    """Always this selector."""

    worker_selector: WorkerSelector


class ConditionalWorkerAttachment(_Kind, frozen=True, kw_only=True, tag="conditional"):
    """These selectors if the condition holds."""

    condition: RouterRule
    worker_selectors: WorkerSelectors


class PassThroughWorkerAttachment(_Kind, frozen=True, kw_only=True, tag="passThrough"):
    """A selector whose value is a label of the job."""

    key: Key
    label_operator: Operator
    expires_after_seconds: Seconds | None = None


class RuleEngineWorkerAttachment(_Kind, frozen=True, kw_only=True, tag="ruleEngine"):
    """The selectors that a rule gives."""

    rule: RouterRule


class WorkerAllocation(DocumentPart, frozen=True, kw_only=True):
    """A share of the jobs, and the selectors that they get."""

    weight: Weight
    worker_selectors: WorkerSelectors


class WeightedWorkerAttachment(_Kind, frozen=True, kw_only=True, tag="weightedAllocation"):
    """The selectors of one allocation, drawn by weight."""

    allocations: Annotated[tuple[WorkerAllocation, ...], _ALLOCATIONS]

    def check(self, at: str) -> None:
        """Refuse weights that are all 0."""
        _check_weights([allocation.weight for allocation in self.allocations], at)


WorkerAttachment: TypeAlias = (
    StaticWorkerAttachment
    | ConditionalWorkerAttachment
    | PassThroughWorkerAttachment
    | RuleEngineWorkerAttachment
    | WeightedWorkerAttachment
)


class ScoringRuleOptions(DocumentPart, frozen=True, kw_only=True):
    """How workers are scored."""

    batch_size: Annotated[int, Meta(ge=1, le=limits.ROUTER_SCORING_BATCH_MAX)] = (
        limits.ROUTER_SCORING_BATCH
    )
    is_batch_scoring_enabled: bool = False
    scoring_parameters: tuple[Literal["jobLabels", "workerSelectors"], ...] = (
        "jobLabels",
        "workerSelectors",
    )
    descending_order: bool = True


class _Mode(_Kind, frozen=True, kw_only=True):
    min_concurrent_offers: Offers = 1
    max_concurrent_offers: Offers | None = None
    bypass_selectors: bool = False

    def __post_init__(self) -> None:
        if self.max_concurrent_offers is None:
            force_setattr(self, "max_concurrent_offers", self.min_concurrent_offers)

    @property
    def offers_max(self) -> int:
        """How many open offers a job may have at a time."""
        return self.max_concurrent_offers or self.min_concurrent_offers

    def check(self, at: str) -> None:
        """Refuse a minimum above the maximum."""
        if self.min_concurrent_offers > self.offers_max:
            raise InvalidValue(
                f"minConcurrentOffers {self.min_concurrent_offers} is above maxConcurrentOffers"
                f" {self.max_concurrent_offers}; raise the maximum too",
                pointer=f"{at}/minConcurrentOffers",
            )


class LongestIdleMode(_Mode, frozen=True, kw_only=True, tag="longestIdle"):
    """The worker with the least load, and of those the one that has waited longest."""


class RoundRobinMode(_Mode, frozen=True, kw_only=True, tag="roundRobin"):
    """Workers in turn."""


class BestWorkerMode(_Mode, frozen=True, kw_only=True, tag="bestWorker"):
    """The worker with the best score."""

    scoring_rule: RouterRule | None = None
    scoring_rule_options: ScoringRuleOptions | None = None


DistributionMode: TypeAlias = BestWorkerMode | LongestIdleMode | RoundRobinMode


class DistributionPolicy(DocumentPart, frozen=True, kw_only=True):
    """The mode of choosing workers, the number of offers, and how long they last."""

    name: Text | None = None
    offer_expires_after_seconds: Seconds | None = None
    mode: DistributionMode = field(default_factory=LongestIdleMode)


class RouterQueue(DocumentPart, frozen=True, kw_only=True):
    """Where jobs wait, and the policies that apply there."""

    name: Text | None = None
    distribution_policy_id: Id
    exception_policy_id: Id | None = None
    labels: Labels = field(default_factory=dict)

    def check(self, at: str) -> None:
        """Refuse labels beyond the bounds."""
        check_labels({f"{at}/labels": self.labels})


class ClassificationPolicy(DocumentPart, frozen=True, kw_only=True):
    """How queue, priority and selectors follow from a job's labels."""

    name: Text | None = None
    fallback_queue_id: Id | None = None
    queue_selector_attachments: Annotated[
        tuple[QueueAttachment, ...], Meta(max_length=limits.ROUTER_ATTACHMENTS_MAX)
    ] = ()
    worker_selector_attachments: Annotated[
        tuple[WorkerAttachment, ...], Meta(max_length=limits.ROUTER_ATTACHMENTS_MAX)
    ] = ()
    prioritization_rule: RouterRule | None = None


def _check_weights(weights: list[float], at: str) -> None:
    if not sum(weights) > 0:
        raise InvalidValue(
            "no allocation has a weight above 0; give at least one", pointer=f"{at}/allocations"
        )
