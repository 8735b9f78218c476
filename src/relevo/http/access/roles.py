"""Permissions, and the roles that are sets of them, as data.

Deny by default. A permission that is not listed here belongs to no role, not even to `admin`, and a
role that is not listed grants nothing, so a typo denies access instead of granting it.
"""

from __future__ import annotations

import functools
import glob
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.dataverse.users.model import RIGHTS, Reach, right_of, wider

if TYPE_CHECKING:
    from collections.abc import Mapping

PERMISSIONS: Final = {
    "actors:call": "call methods of actors",
    "actors:manage": "delete, deactivate and move actors, redrive and discard their dead letters,"
    " repair their state, fire and cancel reminders",
    "actors:read": "see actors, without what users put into them",
    "actors:state": "read the state of actors, and the content of their dead letters",
    "audit:read": "see what operators and keys have changed",
    "bulk:run": RIGHTS["bulk.run"],
    "containers:manage": "make, split and drop containers",
    "containers:read": "see containers and their ranges",
    "events:read": "read the events of all parts",
    "feeds:manage": "pause, move, cut and delete processors, redrive and discard dead letters",
    "feeds:read": "see who reads feeds, and how far behind",
    "governance:manage": "make, change and remove pools, limits and resolvers",
    "governance:read": "see pools, limits and resolvers, without the data of their resources",
    "governance:use": "take permits of pools, charge limits and resolve entities",
    "health:read": "see what keeps a host from its work",
    "history:read": "see the figures of all parts over time",
    "hosts:drain": "have a host hand over what it owns, or take part again",
    "hosts:read": "see hosts",
    "items:read": "read items and their changes",
    "items:write": "write and delete items",
    "jobs:delete": "remove system jobs and their records",
    "jobs:payload": "read what system jobs were given, saved and returned, and their traces",
    "jobs:read": "see system jobs, without what users put into them",
    "jobs:submit": "submit system jobs",
    "jobs:write": "cancel, pause, resume, postpone and unblock system jobs",
    "keys:read": "see access keys, never their secrets",
    "keys:write": "make and revoke access keys",
    "leases:move": "ask for a lease to go to another host",
    "leases:pause": "pause and resume leases",
    "leases:read": "see units and who owns their leases",
    "messages:read": "look at messages with their bodies, without receiving them",
    "messages:receive": "receive and settle messages",
    "messages:send": "send messages",
    "metrics:read": "read the figures of a host",
    "offers:answer": "accept and decline offers, and say what became of the work",
    "pipeline:bypass": RIGHTS["pipeline.bypass"],
    "queues:manage": "make, change and drop queues, topics and subscriptions, redrive and purge"
    " their messages, pause consumers",
    "queues:read": "see queues, topics, subscriptions and consumers, without messages",
    "router:manage": "make, change and delete the router's policies and queues",
    "router:read": "see the router's policies, queues, jobs and events",
    "router:work": "bring jobs to the router and look after its workers",
    "settings:read": "see the settings of a host, without secrets",
    "webhooks:manage": "make, change and remove webhooks, send their dead letters again",
    "webhooks:read": "see webhooks and what is sent to them, without secrets and data",
    "workers:read": "see the router's workers and what they are offered",
}

AUDITED: Final = frozenset(
    {
        "actors:manage", "bulk:run", "containers:manage", "feeds:manage", "governance:manage",
        "hosts:drain", "jobs:delete", "jobs:write", "keys:write", "leases:move", "leases:pause",
        "queues:manage", "router:manage", "webhooks:manage",
    }
)  # fmt: skip
"""Permissions of administrators: what is changed by them is written into the audit."""


class Role(Struct, frozen=True):
    """A set of permissions, as patterns over `PERMISSIONS`."""

    sentence: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    """Taken away from `allow` of this role; another role of the same key may still grant it."""


_VIEW: Final = ("*:read",)
_PRIVATE: Final = ("items:read", "keys:*", "messages:read")
"""Read permissions that `viewer` lacks: keys, and the content of users' work."""

ROLES: Final = {
    "admin": Role("everything", ("*:*",)),
    "consumer": Role(
        "read items and follow their changes", ("containers:read", "feeds:read", "items:read")
    ),
    "operator": Role(
        "see everything but keys, items, messages, payloads and the state of actors, run hosts,"
        " leases, feeds, queues, actors, pools, limits, resolvers, webhooks"
        " and system jobs",
        (
            *_VIEW,
            "actors:manage",
            "feeds:*",
            "governance:manage",
            "hosts:*",
            "jobs:write",
            "jobs:delete",
            "leases:*",
            "queues:*",
            "webhooks:manage",
        ),
        _PRIVATE,
    ),
    "producer": Role(
        "bring work in, and use pools, limits and resolvers",
        ("actors:call", "governance:use", "items:write", "jobs:submit", "messages:send"),
    ),
    "router": Role(
        "bring jobs to the router, look after its workers and answer offers for them",
        ("router:read", "router:work", "workers:read", "offers:answer"),
    ),
    "reader": Role(
        "see what the job router and system jobs do", ("router:read", "workers:read", "jobs:read")
    ),
    "supervisor": Role(
        "see everything but keys, items and messages, run the job router",
        (*_VIEW, "router:*", "offers:*"),
        _PRIVATE,
    ),
    "viewer": Role("see everything but keys, items and messages", _VIEW, _PRIVATE),
    "worker": Role(
        "take work and report on it, and use pools, limits and resolvers; `worker:<id>` is the"
        " same for one worker of the router",
        ("governance:use", "messages:receive", "offers:answer", "workers:read"),
    ),
}
_OF_RIGHT: Final = {
    "job.read": "jobs:read",
    "job.write": "jobs:write",
    "job.delete": "jobs:delete",
    "job.payload.read": "jobs:payload",
    "job.submit": "jobs:submit",
    "pipeline.bypass": "pipeline:bypass",
    "bulk.run": "bulk:run",
}
"""The permission that each right of `relevo.dataverse.users` is."""
_OF_ONE_WORKER: Final = "worker:"
"""The prefix of a role that is `worker` for one worker id only."""


def is_role(name: str) -> bool:
    """Whether there is such a role; a single right with its reach, `job.read:own`, is one too."""
    return _base(name) in ROLES or right_of(name) is not None


def _base(name: str) -> str:
    one = name.startswith(_OF_ONE_WORKER) and len(name) > len(_OF_ONE_WORKER)
    return "worker" if one else name


def scopes_of(roles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of a key with these roles, as patterns; none means no limit.

    >>> scopes_of(("reader", "worker:8:acs:ana"))
    ('worker:8:acs:ana',)
    """
    return tuple(glob.escape(role) for role in roles if _base(role) != role)


@functools.cache
def granted(role: str) -> frozenset[str]:
    """Return the permissions of a role; none if there is no such role."""
    found = ROLES.get(role)
    if found is None:
        single = right_of(role)
        return frozenset() if single is None else frozenset({_OF_RIGHT[single[0]]})
    return frozenset(
        permission
        for permission in PERMISSIONS
        if any(fnmatchcase(permission, pattern) for pattern in found.allow)
        and not any(fnmatchcase(permission, pattern) for pattern in found.deny)
    )


def permissions_of(roles: tuple[str, ...]) -> frozenset[str]:
    """Return the permissions of a key with these roles."""
    return frozenset().union(*(granted(_base(role)) for role in roles))


def reach_of(roles: tuple[str, ...]) -> dict[str, Reach]:
    """Return how far permissions of single rights reach; those of roles reach everything.

    >>> reach_of(("job.read:own", "job.write:unit", "job.write:own"))
    {'jobs:read': 'own', 'jobs:write': 'unit'}
    >>> reach_of(("job.read:own", "reader"))
    {'jobs:read': 'all'}
    """
    found: dict[str, Reach] = {}
    for role in roles:
        single = right_of(role)
        if single is not None:
            permission = _OF_RIGHT[single[0]]
            found[permission] = wider(found.get(permission, "own"), single[1])
    whole = permissions_of(tuple(role for role in roles if right_of(role) is None))
    return {one: "all" if one in whole else reach for one, reach in found.items()}


def covers(
    permissions: frozenset[str], reach: Mapping[str, Reach], permission: str, roles: tuple[str, ...]
) -> bool:
    """Whether permissions with a reach cover a permission as far as some roles grant it."""
    given = reach_of(roles).get(permission, "all")
    mine = reach.get(permission, "all")
    return permission in permissions and wider(mine, given) == mine
