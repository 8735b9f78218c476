"""`/routing/…Policies` and `/routing/queues`: what the ancestor's administration client asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, field

from relevo import limits
from relevo.errors import ConditionNotMet, InUse, NotFound, ReferenceNotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Page
from relevo.kernel import cpu
from relevo.kernel.operation import OperationOptions, Operations, Outcome, Versioned
from relevo.router import model
from relevo.router.administration import WORDS, Administered, Stored
from relevo.router.http.surface import CONTINUATION, Listing, Version
from relevo.router.wire import representations
from relevo.router.wire.conditions import Conditions, http_date

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

ResourceId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.ROUTER_ID_LENGTH_MAX,
        description="Chosen by the caller; any characters but control characters.",
    ),
]
ApiVersion = Annotated[Version, Meta(description="The version of the API that the caller speaks.")]
FIXED: Final = {"api-version": "2023-11-01"}
CONDITIONS: Final = {
    "if_match": "If-Match",
    "if_none_match": "If-None-Match",
    "if_unmodified_since": "If-Unmodified-Since",
}
MERGE_PATCH: Final[OperationOptions] = {
    "outcomes": (Outcome(201, lambda answer: answer.created, "It was created."),),
    "headers": CONDITIONS,
    "body": "patch",
}
"""What changes by merge patches have in common."""
operation = Operations(fixed=FIXED)


class _Request(Struct, frozen=True, kw_only=True):
    api_version: ApiVersion = field(name="api-version")


class ListResources(_Request, frozen=True, kw_only=True):
    """Which page."""

    limit: Annotated[
        int, Meta(ge=1, description="The largest number of items to return; up to 1000 are.")
    ] = field(name="maxpagesize", default=limits.PAGE_ROWS_DEFAULT)
    cursor: Cursor | None = field(name=CONTINUATION, default=None)


class _Place(Struct, frozen=True, array_like=True):
    """Where a page has ended."""

    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ById(_Request, frozen=True, kw_only=True):
    """Which resource."""

    id: ResourceId


class PatchResource(ById, frozen=True, kw_only=True):
    """What a resource is to become, and on which conditions."""

    patch: Annotated[
        bytes,
        Meta(description="What is to change, as JSON: null takes a value away, arrays are whole."),
    ]
    if_match: (
        Annotated[str, Meta(description="Only if its tag is this one; `*`: only if it is there.")]
        | None
    ) = None
    if_none_match: (
        Annotated[str, Meta(description="Only if its tag is another; `*`: only if it is missing.")]
        | None
    ) = None
    if_unmodified_since: (
        Annotated[str, Meta(description="Only if it was not modified after this date.")] | None
    ) = None

    @property
    def conditions(self) -> Conditions:
        """What has to hold before the patch is looked at."""
        return Conditions(
            if_match=self.if_match,
            if_none_match=self.if_none_match,
            if_unmodified_since=http_date(self.if_unmodified_since, "If-Unmodified-Since"),
        )


class DistributionPolicyView(model.DistributionPolicy, frozen=True, kw_only=True):
    """Who is offered a job, how many at a time, and for how long."""

    id: str
    etag: str


class ClassificationPolicyView(model.ClassificationPolicy, frozen=True, kw_only=True):
    """How queue, priority and selectors follow from a job's labels."""

    id: str
    etag: str


class ExceptionPolicyView(model.ExceptionPolicy, frozen=True, kw_only=True):
    """What happens when a queue is too long or a job waits too long."""

    id: str
    etag: str


class RouterQueueView(model.RouterQueue, frozen=True, kw_only=True):
    """Where jobs wait, and the policies that apply there."""

    id: str
    etag: str


async def _versioned(stored: Stored, principal: Principal) -> Versioned[Any]:
    return Versioned(
        body=await _shown(stored, principal),
        etag=stored.etag,
        modified_at=stored.modified_at,
        created=stored.created,
    )


async def _shown(stored: Stored, principal: Principal) -> dict[str, Any]:
    to_writer = "router:manage" in principal.permissions
    show = partial(representations.resource, to_writer=to_writer)
    return await cpu.decoded(stored.size, show, stored)


async def _page(
    services: Services, who: Principal, kind: Administered, command: ListResources
) -> Page[Any]:
    limit = min(command.limit, limits.ROUTER_PAGE_ROWS_MAX)
    after = paging.decode(command.cursor, _Place) or _Place(0)
    found = await services.app.router.policies.page(kind, after.number, limit)
    shown = {stored.number: await _shown(stored, who) for stored in found.items}
    return paging.page(
        services.page_bytes,
        found,
        lambda stored: _Place(stored.number),
        show=lambda stored: shown[stored.number],
    )


def _declare(kind: Administered, noun: str, plural: str, view: Any) -> None:
    """Declare the four operations of a kind; `noun` is its part of their names."""
    path, word = f"/routing/{kind}", WORDS[kind]
    scope = f"{'router_queue' if kind == 'queues' else word.replace(' ', '_')}:{{id}}"

    @operation(
        f"router.{noun}.list", f"GET {path}", "router:read",
        summary=f"List {plural}.", response=Listing[view],
    )  # fmt: skip
    async def page(services: Services, who: Principal, command: ListResources) -> Page[Any]:
        """Return those of a kind in the order of their creation."""
        return await _page(services, who, kind, command)

    @operation(
        f"router.{noun}.get", f"GET {path}/{{id}}", "router:read",
        summary=f"Show a {word}.", response=view, errors=(NotFound,), scope=scope,
    )  # fmt: skip
    async def get(services: Services, who: Principal, command: ById) -> Versioned[Any]:
        """Return one."""
        return await _versioned(await services.app.router.policies.get(kind, command.id), who)

    @operation(
        f"router.{noun}.patch", f"PATCH {path}/{{id}}", "router:manage", MERGE_PATCH,
        summary=f"Create a {word}, or change it by a merge patch.", response=view,
        errors=(ConditionNotMet, ReferenceNotFound), scope=scope,
    )  # fmt: skip
    async def patch(services: Services, who: Principal, command: PatchResource) -> Versioned[Any]:
        """Create one, or merge a change into it."""
        stored = await services.app.router.policies.patch(
            kind, command.id, command.patch, command.conditions
        )
        return await _versioned(stored, who)

    @operation(
        f"router.{noun}.delete", f"DELETE {path}/{{id}}", "router:manage",
        summary=f"Delete a {word} that nothing refers to; again changes nothing.",
        errors=(InUse,), scope=scope,
    )  # fmt: skip
    async def delete(services: Services, _: Principal, command: ById) -> None:
        """Delete one; again changes nothing."""
        await services.app.router.policies.delete(kind, command.id)


_declare(
    "distributionPolicies", "distribution_policies", "distribution policies", DistributionPolicyView
)
_declare(
    "classificationPolicies", "classification_policies", "classification policies",
    ClassificationPolicyView,
)  # fmt: skip
_declare("exceptionPolicies", "exception_policies", "exception policies", ExceptionPolicyView)
_declare("queues", "queues", "queues of the job router", RouterQueueView)
