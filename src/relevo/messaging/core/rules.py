"""Rules of subscriptions: which copies of a message each subscription of a topic gets. Pure.

    rules = TopicRules()
    rules.set("high", "$Default", compiled("Priority = 'high'"))
    rules.route(message).copies    (Copy(subscription="high", …),)

If a rule without an action matches, the subscription gets one plain copy. Each matching rule with
an action gives another copy, changed by the action. A rule that fails affects only itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import CallerError
from relevo.kernel.expressions import sqlaction, sqlfilter
from relevo.messaging.core import heads
from relevo.messaging.core.content import check_message
from relevo.messaging.core.correlation import CorrelationFilter, CorrelationIndex
from relevo.messaging.model import CorrelationRule, Message, SqlRule

RULE_NAME: Final = "RuleName"
"""The property that names the rule in a copy that its action has changed."""


_SENT: Final = frozenset(known.field for known in sqlfilter.SYSTEM_PROPERTIES if known.writable)
"""The fields that a sender can set."""


class MessageView(Protocol):
    """The properties of a message that rules see.

    Values have exactly the types of application properties, without subclasses; instants have a
    time zone, `ttl` is a timedelta.
    """

    @property
    def system(self) -> Mapping[str, Any]:
        """The fields of `sqlfilter.SYSTEM_PROPERTIES`; fields that are not set may be null."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """The application properties."""


class SqlFilter:
    """A compiled SQL filter. Raises `InvalidExpression` with line and column."""

    def __init__(
        self,
        text: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        length_max: int = limits.FILTER_LENGTH_MAX,
    ) -> None:
        self.text = text
        self.predicate = sqlfilter.compiled(text, parameters=parameters, length_max=length_max)


RuleFilter: TypeAlias = SqlFilter | CorrelationFilter


class SubscriptionRule(Struct, frozen=True):
    """A filter, and the action for the copies that it selects."""

    filter: RuleFilter
    action: sqlaction.Action | None = None


def compiled(
    rule: str | SqlRule | CorrelationRule, *, length_max: int = limits.FILTER_LENGTH_MAX
) -> SubscriptionRule:
    """Return a rule, ready to route messages; a text is a SQL filter without an action.

    Raises `InvalidExpression` or `InvalidValue`. Reading a long text takes a tenth of a second, so
    do that in a thread, not in the event loop.
    """
    if isinstance(rule, str):
        rule = SqlRule(rule)
    action = None if rule.action is None else sqlaction.parse(rule.action)
    if isinstance(rule, SqlRule):
        return SubscriptionRule(SqlFilter(rule.filter, length_max=length_max), action)
    return SubscriptionRule(CorrelationFilter.of(rule), action)


def encoded_rule(rule: SqlRule | CorrelationRule) -> str:
    """Return a rule as it is stored."""
    plain: dict[str, Any] = {"type": rule.__struct_config__.tag}
    for name, value in msgspec.structs.asdict(rule).items():
        if value:
            plain[name] = heads.encoded_values(value) if name == "properties" else value
    return msgspec.json.encode(plain).decode()


def stored_rule(text: str) -> SqlRule | CorrelationRule:
    """Return a rule from how it is stored."""
    plain = msgspec.json.decode(text)
    kind = SqlRule if plain.pop("type") == SqlRule.__struct_config__.tag else CorrelationRule
    if "properties" in plain:
        plain["properties"] = heads.decoded_values(plain["properties"])
    return kind(**plain)


class Copy(Struct, frozen=True):
    """A copy of the message for a subscription."""

    subscription: str
    system: Mapping[str, Any]
    properties: Mapping[str, Any]
    rule: str | None = None
    """The rule whose action made it; null for the plain copy."""


class RuleFailure(Struct, frozen=True):
    """A rule whose filter or action failed: it gives no copy.

    With `dead_letter_on_filter_error` the subscription's dead-letter queue gets the message once.
    """

    subscription: str
    rule: str
    error: CallerError


class Routing(Struct, frozen=True):
    """The result of one message against all rules of a topic."""

    copies: tuple[Copy, ...]
    failures: tuple[RuleFailure, ...]


class TopicRules:
    """The rules of a topic's subscriptions, ready to route messages.

    Names that differ only in case are different here: pass them as they are stored.
    """

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], SubscriptionRule] = {}
        self._predicates: dict[tuple[str, str], sqlfilter.Predicate] = {}
        """Those of SQL filters; correlation filters are in the index."""
        self._index: CorrelationIndex[tuple[str, str]] = CorrelationIndex()

    def set(self, subscription: str, name: str, rule: SubscriptionRule) -> None:
        """Add a rule, or replace the one with this name."""
        self.remove(subscription, name)
        key = subscription, name
        self._rules[key] = rule
        if isinstance(rule.filter, CorrelationFilter):
            self._index.add(key, rule.filter)
        else:
            self._predicates[key] = rule.filter.predicate

    def remove(self, subscription: str, name: str) -> None:
        """Remove a rule; does nothing if there is none with this name."""
        key = subscription, name
        self._rules.pop(key, None)
        self._predicates.pop(key, None)
        self._index.remove(key)

    def route(self, message: MessageView) -> Routing:
        """Return the copies of a message, by subscription, and the rules that failed."""
        failures: list[RuleFailure] = []
        plain: dict[str, Copy] = {}
        changed: list[Copy] = []
        for subscription, name in self._matches(message, failures):
            action = self._rules[subscription, name].action
            if action is None:
                plain[subscription] = Copy(subscription, message.system, message.properties)
                continue
            try:
                changed.append(_changed(message, subscription, name, action))
            except CallerError as error:
                failures.append(RuleFailure(subscription, name, error))
        return Routing((*plain.values(), *changed), tuple(failures))

    def _matches(
        self, message: MessageView, failures: list[RuleFailure]
    ) -> Iterator[tuple[str, str]]:
        yield from self._index.matches(message.system, message.properties)
        scope = sqlfilter.scope(message.system, message.properties)
        for key, predicate in self._predicates.items():
            try:
                selected = predicate(scope) is True
            except CallerError as error:
                failures.append(RuleFailure(*key, error))
                continue
            if selected:
                yield key


def _changed(message: MessageView, subscription: str, name: str, action: sqlaction.Action) -> Copy:
    """The copy of a rule with an action; fails if nobody could send such a message."""
    system, properties = action.apply(message.system, message.properties)
    properties[RULE_NAME] = name
    sent = {field: value for field, value in system.items() if field in _SENT}
    check_message(Message(b"", properties=properties, **sent))
    return Copy(subscription, system, properties, name)
