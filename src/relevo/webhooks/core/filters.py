"""Which events a webhook gets: types, and a condition on the event's fields. Pure.

    wanted = EventFilter(("relevo.job.*",), "data.lane = 'post' AND version > 1")
    wanted.takes(recorded)

Conditions are written in the language of SQL filters of subscriptions. They see the fields `type`,
`subject` and `version`, and the members of the event's data as `data.<name>`; a member of a member
is `data.[labels.region]`. Names ignore case. What is unknown does not select.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from relevo import limits
from relevo.errors import CallerError
from relevo.kernel.expressions import sqlfilter, to_python
from relevo.kernel.expressions.syntax import similar
from relevo.kernel.expressions.tree import Member, Name
from relevo.kernel.expressions.values import WHOLE_MAX, fold
from relevo.router.events import TOUCHED
from relevo.router.wire.envelopes import NAMES
from relevo.webhooks.events import OWN_SUBJECT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lark import Token, Tree

    from relevo.kernel.events import Recorded
    from relevo.kernel.expressions.sqlfilter import SystemProperty

INTERNAL: Final = frozenset({TOUCHED})
"""Types that only Relevo itself reads."""
_EVENT: Final = Name("event")
_DATA: Final = Name("data")
_FIELDS: Final = ("subject", "type", "version")
_DEPTH_MAX: Final = 4
_MEMBERS_MAX: Final = 1_000


class EventFilter:
    """A compiled filter; raises `InvalidExpression` for a wrong condition."""

    def __init__(self, types: tuple[str, ...], condition: str | None) -> None:
        self._types = types
        self._known: dict[str, bool] = {}
        self._condition = None if condition is None else compiled(condition)

    def takes(self, event: EventView) -> bool:
        """Return whether an event is wanted; one that the condition fails for is not."""
        if not self._takes_type(event.recorded.type):
            return False
        if self._condition is None:
            return True
        try:
            return self._condition(event.scope) is True
        except CallerError:
            return False

    def _takes_type(self, name: str) -> bool:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = name not in INTERNAL and any(
                matches(pattern, name) for pattern in self._types
            )
        return found


class EventView:
    """An event as filters see it; its data is read once, and only if a filter asks for it."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded

    @cached_property
    def scope(self) -> Mapping[str, Mapping[str, Any]]:
        """The values by the names in conditions."""
        event = self.recorded
        fields = {"type": event.type, "subject": event.subject, "version": event.version}
        members: dict[str, Any] = {}
        for name, value in _members(event.data, "", 0):
            if len(members) == _MEMBERS_MAX:
                break
            members.setdefault(fold(name), value)
        return {_EVENT.name: fields, _DATA.name: members}


def compiled(condition: str) -> sqlfilter.Predicate:
    """Return the function of a condition; raises `InvalidExpression` with line and column."""
    sqlfilter.check_length(condition, limits.FILTER_LENGTH_MAX)
    tree = _Builder().condition(sqlfilter.GRAMMAR.parse(condition, "filter"))
    return to_python.function(tree, depth_max=sqlfilter.TREE_DEPTH_MAX)


def matches(pattern: str, name: str) -> bool:
    """Return whether a type's name, or Azure's name of it, is meant by a pattern.

    >>> matches("relevo.job.*", "relevo.job.completed")
    True
    >>> matches("Microsoft.Communication.RouterJobQueued", "relevo.router.job.queued")
    True
    """
    names = (name, NAMES.get(name, name))
    if pattern.endswith("*"):
        return any(each.startswith(pattern[:-1]) for each in names)
    return pattern in names


def is_own(recorded: Recorded, webhook: str) -> bool:
    """Return whether an event is about a webhook: sent to itself, it would cause the next one."""
    return recorded.subject == OWN_SUBJECT + webhook


class _Builder(sqlfilter.FilterBuilder):
    """Reads names as those of an event's fields."""

    def property(self, syntax: Tree[Token]) -> tuple[Member, SystemProperty | None]:
        *scopes, token = cast("list[Token]", syntax.children)
        name = sqlfilter.unquoted(token)
        if scopes:
            if scopes[0].lower() != _DATA.name:
                raise similar("scope", scopes[0], (_DATA.name,))
            return Member(_DATA, (name,), "folded"), None
        if name.lower() not in _FIELDS:
            raise similar("field of an event", token, (*_FIELDS, "data.<name>"))
        return Member(_EVENT, (name.lower(),)), None


def _members(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the plain values in an event's data by their paths; lists have none."""
    if not isinstance(value, dict) or depth > _DEPTH_MAX:
        return
    for name, each in value.items():
        path = f"{prefix}{name}"
        if isinstance(each, dict):
            yield from _members(each, f"{path}.", depth + 1)
        elif isinstance(each, bool | str | float) or (
            isinstance(each, int) and -WHOLE_MAX <= each <= WHOLE_MAX
        ):
            yield path, each
