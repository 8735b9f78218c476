"""`/routing/…Policies` and `/routing/queues`: the requests of Azure's administration client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from relevo import limits
from relevo.errors import ConditionNotMet, InUse, NotFound, ReferenceNotFound
from relevo.http import paging
from relevo.http.paging import Page
from relevo.kernel import cpu
from relevo.kernel.operation import Operations, Versioned
from relevo.router.administration import WORDS, Administered, StoredResource
from relevo.router.http.surface import (
    FIXED,
    MERGE_PATCH,
    ById,
    Listing,
    ListPlace,
    ListResources,
    PatchResource,
)
from relevo.router.wire import exception_policies, policies, representations

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

operation = Operations(fixed=FIXED)


class DistributionPolicyView(policies.DistributionPolicy, frozen=True, kw_only=True):
    """The mode of choosing workers, the number of offers, and how long they last."""

    id: str
    etag: str


class ClassificationPolicyView(policies.ClassificationPolicy, frozen=True, kw_only=True):
    """How queue, priority and selectors follow from a job's labels."""

    id: str
    etag: str


class ExceptionPolicyView(exception_policies.ExceptionPolicy, frozen=True, kw_only=True):
    """Rules for queues that are too long and jobs that wait too long."""

    id: str
    etag: str


class RouterQueueView(policies.RouterQueue, frozen=True, kw_only=True):
    """Where jobs wait, and the policies that apply there."""

    id: str
    etag: str


async def _versioned(stored: StoredResource, principal: Principal) -> Versioned[Any]:
    return Versioned(
        body=await _shown(stored, principal),
        etag=stored.etag,
        modified_at=stored.modified_at,
        created=stored.created,
    )


async def _shown(stored: StoredResource, principal: Principal) -> dict[str, Any]:
    to_writer = "router:manage" in principal.permissions
    show = partial(representations.resource, to_writer=to_writer)
    return await cpu.decoded(stored.size, show, stored)


async def _page(
    services: Services, who: Principal, kind: Administered, command: ListResources
) -> Page[Any]:
    limit = min(command.limit, limits.ROUTER_PAGE_ROWS_MAX)
    after = paging.decode(command.cursor, ListPlace) or ListPlace(0)
    found = await services.app.router.policies.page(kind, after.number, limit)
    shown = {stored.number: await _shown(stored, who) for stored in found.items}
    return paging.page(
        services.page_bytes,
        found,
        lambda stored: ListPlace(stored.number),
        show=lambda stored: shown[stored.number],
    )


def _declare(kind: Administered, noun: str, plural: str, view: Any) -> None:
    """Declare the four operations of a kind; `noun` is its part of their names."""
    path, word = f"/routing/{kind}", WORDS[kind]
    article = "an" if word[0] in "aeiou" else "a"
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
        summary=f"Show {article} {word}.", response=view, errors=(NotFound,), scope=scope,
    )  # fmt: skip
    async def get(services: Services, who: Principal, command: ById) -> Versioned[Any]:
        """Return one."""
        return await _versioned(await services.app.router.policies.get(kind, command.id), who)

    @operation(
        f"router.{noun}.patch", f"PATCH {path}/{{id}}", "router:manage", MERGE_PATCH,
        summary=f"Create {article} {word}, or change it by a merge patch.", response=view,
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
        summary=f"Delete {article} {word} that nothing refers to; again changes nothing.",
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
