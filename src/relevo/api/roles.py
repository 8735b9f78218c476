"""Who may do what, as data: permissions, and the roles that are sets of them.

Deny by default. A permission that is not listed here belongs to nobody, not even to `admin`, and a
role that is not listed grants nothing; so a typo closes a door instead of opening one.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

PERMISSIONS: Final = {
    "containers:manage": "make, split and drop containers",
    "containers:read": "see containers and their ranges",
    "feeds:manage": "pause, resume and rewind processors, redrive and discard dead letters",
    "feeds:read": "see who reads feeds, and how far behind",
    "health:read": "see what keeps a host from its work",
    "hosts:drain": "have a host hand over what it owns, or take part again",
    "hosts:read": "see hosts",
    "items:read": "read items and their changes",
    "items:write": "write and delete items",
    "keys:read": "see access keys, never their secrets",
    "keys:write": "make and revoke access keys",
    "leases:move": "ask for a lease to go to another host",
    "leases:pause": "pause and resume leases",
    "leases:read": "see units and who owns their leases",
    "metrics:read": "read the figures of a host",
}


class Role(Struct, frozen=True):
    """A set of permissions, as patterns over `PERMISSIONS`."""

    sentence: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    """Taken away from `allow` of this role; another role of the same key may still grant it."""


_VIEW: Final = ("*:read",)
_PRIVATE: Final = ("items:read", "keys:*")
"""What seeing everything does not include: keys, and what users put into their work."""

ROLES: Final = {
    "admin": Role("everything", ("*:*",)),
    "consumer": Role(
        "read items and follow their changes", ("containers:read", "feeds:read", "items:read")
    ),
    "operator": Role(
        "see everything but keys and items, run hosts, leases and feeds",
        (*_VIEW, "feeds:*", "hosts:*", "leases:*"),
        _PRIVATE,
    ),
    "producer": Role("bring work in", ("items:write", "jobs:submit", "messages:send")),
    "supervisor": Role(
        "see everything but keys and items, run the job router", (*_VIEW, "router:*"), _PRIVATE
    ),
    "viewer": Role("see everything but keys and items", _VIEW, _PRIVATE),
    "worker": Role("take work and report on it", ("messages:receive", "offers:answer")),
}


@functools.cache
def granted(role: str) -> frozenset[str]:
    """Return the permissions of a role; none if there is no such role."""
    found = ROLES.get(role)
    if found is None:
        return frozenset()
    return frozenset(
        permission
        for permission in PERMISSIONS
        if any(fnmatchcase(permission, pattern) for pattern in found.allow)
        and not any(fnmatchcase(permission, pattern) for pattern in found.deny)
    )


def permissions_of(roles: tuple[str, ...]) -> frozenset[str]:
    """Return what a key with these roles may do."""
    return frozenset().union(*(granted(role) for role in roles))
