"""The words of commands: how the name of an operation becomes a noun and a verb.

The command line has one verb for one thing: `create`, `show`, `list`, `update` and `delete`,
whatever the operation of a part is called. Words of Dataverse stand only below `relevo dataverse`.
"""

from __future__ import annotations

from typing import Final

VERBS: Final = {
    "get": "show", "read": "show",
    "put": "create", "define": "create", "set": "create",
    "patch": "update",
    "drop": "delete", "remove": "delete",
}  # fmt: skip
OF_DATAVERSE: Final = frozenset({"users", "teams", "units", "bulk_deletes"})
"""Nouns of operations that belong to the Dataverse surface."""
SPECIAL: Final = {
    "jobs.payload": ("job", "show"),
    "jobs.submit_many": ("job", "submit"),
    "jobs.retry_all": ("job", "retry"),
    "resolvers.remove": ("resolver", "remove-resource"),
    "router.events.read": ("router", "event", "list"),
}
"""Operations whose command is not made of their own words."""
VIEWS: Final = "jobs.views."
"""One command shows all these operations."""
CREATE_OR_UPDATE: Final = "router."
"""A merge patch of these operations creates what is missing: `create` is their second command."""


def words_of(operation: str) -> tuple[str, ...]:
    """Return the words of an operation's command.

    >>> words_of("router.exception_policies.list")
    ('router', 'exception-policy', 'list')
    >>> words_of("queues.drop"), words_of("users.get")
    (('queue', 'delete'), ('dataverse', 'user', 'show'))
    """
    if operation.startswith(VIEWS):
        return ("job", "view")
    if operation in SPECIAL:
        return SPECIAL[operation]
    *nouns, verb = operation.split(".")
    above = ("dataverse",) if nouns[0] in OF_DATAVERSE else ()
    words = (*above, *map(singular, nouns), VERBS.get(verb, verb))
    return tuple(word.replace("_", "-") for word in words)


def also_of(operation: str) -> tuple[str, ...] | None:
    """Return the words of the command that creates, of a merge patch that does both.

    >>> also_of("router.queues.patch")
    ('router', 'queue', 'create')
    """
    if operation.startswith(CREATE_OR_UPDATE) and operation.endswith(".patch"):
        return (*words_of(operation)[:-1], "create")
    return None


def singular(noun: str) -> str:
    """Return the singular of a noun.

    >>> [singular(noun) for noun in ("policies", "hosts", "classes", "batches", "status")]
    ['policy', 'host', 'class', 'batch', 'status']
    """
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    if noun.endswith(("sses", "ches")):
        return noun[:-2]
    if noun.endswith("s") and not noun.endswith(("ss", "us")):
        return noun[:-1]
    return noun
