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
from relevo.kernel.operation import Handler, Operation, Outcome, Versioned
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
CREATED: Final = Outcome(201, lambda answer: answer.created, "It was created.")


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


async def _versioned(stored: Stored, principal: Principal) -> Versioned:
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


def _lists(kind: Administered) -> Handler:
    async def handler(services: Services, who: Principal, command: ListResources) -> Page[Any]:
        """Return those of a kind in the order of their creation."""
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

    return handler


def _gets(kind: Administered) -> Handler:
    async def handler(services: Services, who: Principal, command: ById) -> Versioned:
        """Return one."""
        return await _versioned(await services.app.router.policies.get(kind, command.id), who)

    return handler


def _patches(kind: Administered) -> Handler:
    async def handler(services: Services, who: Principal, command: PatchResource) -> Versioned:
        """Create one, or merge a change into it."""
        stored = await services.app.router.policies.patch(
            kind, command.id, command.patch, command.conditions
        )
        return await _versioned(stored, who)

    return handler


def _deletes(kind: Administered) -> Handler:
    async def handler(services: Services, _: Principal, command: ById) -> None:
        """Delete one; again changes nothing."""
        await services.app.router.policies.delete(kind, command.id)

    return handler


def _operations(
    kind: Administered, noun: str, view: type[Struct], plural: str
) -> tuple[Operation, ...]:
    """Return the four operations of a kind; `noun` is its part of their names."""
    path, word = f"/routing/{kind}", WORDS[kind]
    scope = f"{'router_queue' if kind == 'queues' else word.replace(' ', '_')}:{{id}}"
    return (
        Operation(
            name=f"router.{noun}.list",
            method="GET",
            path=path,
            summary=f"List {plural}.",
            request=ListResources,
            response=Listing[view],  # type: ignore[valid-type]
            permission="router:read",
            handler=_lists(kind),
            fixed=FIXED,
        ),
        Operation(
            name=f"router.{noun}.get",
            method="GET",
            path=f"{path}/{{id}}",
            summary=f"Show a {word}.",
            request=ById,
            response=view,
            permission="router:read",
            handler=_gets(kind),
            errors=(NotFound,),
            scope=scope,
            fixed=FIXED,
        ),
        Operation(
            name=f"router.{noun}.patch",
            method="PATCH",
            path=f"{path}/{{id}}",
            summary=f"Create a {word}, or change it by a merge patch.",
            request=PatchResource,
            response=view,
            permission="router:manage",
            handler=_patches(kind),
            errors=(ConditionNotMet, ReferenceNotFound),
            outcomes=(CREATED,),
            scope=scope,
            headers=CONDITIONS,
            body="patch",
            fixed=FIXED,
        ),
        Operation(
            name=f"router.{noun}.delete",
            method="DELETE",
            path=f"{path}/{{id}}",
            summary=f"Delete a {word} that nothing refers to; again changes nothing.",
            request=ById,
            response=None,
            permission="router:manage",
            handler=_deletes(kind),
            errors=(InUse,),
            scope=scope,
            fixed=FIXED,
        ),
    )


OPERATIONS: Final = (
    *_operations(
        "distributionPolicies", "distribution_policies", DistributionPolicyView,
        "distribution policies",
    ),
    *_operations(
        "classificationPolicies", "classification_policies", ClassificationPolicyView,
        "classification policies",
    ),
    *_operations(
        "exceptionPolicies", "exception_policies", ExceptionPolicyView, "exception policies"
    ),
    *_operations("queues", "queues", RouterQueueView, "queues of the job router"),
)  # fmt: skip
