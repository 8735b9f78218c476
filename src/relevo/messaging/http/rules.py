"""`…/subscriptions/{subscription}/rules`: which messages a subscription gets, and what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import InvalidExpression, InvalidValue, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.messaging.core.heads import encoded_values
from relevo.messaging.http.models import properties_of
from relevo.messaging.http.places import SUBSCRIPTION, BySubscription, request_at, subscription_of
from relevo.messaging.model import CorrelationRule, SqlRule

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

ROUTE: Final = f"{SUBSCRIPTION.route}/rules"

operation = Operations(scope=SUBSCRIPTION.scope, errors=(NotFound,))

RuleName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.MESSAGE_RULE_NAME_LENGTH_MAX,
        description="The rule's name; `$Default` is the one of a subscription without rules.",
    ),
]


class Correlation(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Fields that a message must equal, all of them."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: dict[str, Any] = {}


class RuleBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule: a filter, or fields that are compared, and an action."""

    filter: (
        Annotated[str, Meta(description="A SQL filter, such as `Priority = 'high'`.")] | None
    ) = None
    correlation: (
        Annotated[Correlation, Meta(description="Fields to compare, instead of a filter.")] | None
    ) = None
    action: (
        Annotated[str, Meta(description="Changes the copy, such as `SET tier = 'gold'`.")] | None
    ) = None


class RuleView(RuleBody, frozen=True, kw_only=True, omit_defaults=True):
    """A rule of a subscription."""

    name: str


def rule_of(body: RuleBody, pointer: str = "") -> SqlRule | CorrelationRule:
    """Return the rule that a request describes."""
    if (body.filter is None) == (body.correlation is None):
        raise InvalidValue(
            "a rule has a `filter` or a `correlation`, and not both", pointer=f"{pointer}/filter"
        )
    if body.correlation is None:
        return SqlRule(body.filter or "", body.action)
    fields = msgspec.structs.asdict(body.correlation)
    fields["properties"] = properties_of(body.correlation.properties, f"{pointer}/correlation")
    return CorrelationRule(**fields, action=body.action)


def view_rule(name: str, rule: SqlRule | CorrelationRule) -> RuleView:
    """Return a rule as the API shows it."""
    if isinstance(rule, SqlRule):
        return RuleView(name=name, filter=rule.filter, action=rule.action)
    fields = {one: getattr(rule, one) for one in Correlation.__struct_fields__}
    fields["properties"] = encoded_values(rule.properties)
    return RuleView(name=name, correlation=Correlation(**fields), action=rule.action)


class ListRules(Struct, frozen=True, kw_only=True):
    """Which page of rules."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("rules.list", f"GET {ROUTE}", "queues:read", request=request_at(SUBSCRIPTION, ListRules))
async def list_rules(services: Services, _: Principal, command: Any) -> Page[RuleView]:
    """List the rules of a subscription."""
    rules = await subscription_of(services, command).rules()
    after = (paging.decode(command.cursor, str) or "").lower()
    ordered = sorted(rules.items(), key=lambda one: one[0].lower())
    found = [view_rule(name, rule) for name, rule in ordered if name.lower() > after]
    shown = first(found, command.limit)
    return paging.page(services.page_bytes, shown, lambda one: one.name)


class ByRule(BySubscription, frozen=True, kw_only=True):
    """Which rule."""

    rule: RuleName


@operation("rules.get", f"GET {ROUTE}/{{rule}}", "queues:read")
async def get_rule(services: Services, _: Principal, command: ByRule) -> RuleView:
    """Show a rule of a subscription."""
    rules = await subscription_of(services, command).rules()
    for name, rule in rules.items():
        if name.lower() == command.rule.lower():
            return view_rule(name, rule)
    raise NotFound(f"{str(command.address)!r} has no rule {command.rule!r}")


class RuleFields(RuleBody, frozen=True, kw_only=True):
    """A rule, new or not."""

    rule: RuleName


@operation(
    "rules.set", f"PUT {ROUTE}/{{rule}}", "queues:manage", errors=(NotFound, InvalidExpression),
    request=request_at(SUBSCRIPTION, RuleFields),
)  # fmt: skip
async def set_rule(services: Services, _: Principal, command: Any) -> RuleView:
    """Add a rule to a subscription, or replace it; later messages follow it."""
    rule = rule_of(command)
    await subscription_of(services, command).set_rule(command.rule, rule)
    return view_rule(command.rule, rule)


@operation("rules.remove", f"DELETE {ROUTE}/{{rule}}", "queues:manage")
async def remove_rule(services: Services, _: Principal, command: ByRule) -> None:
    """Remove a rule of a subscription; later messages do not follow it."""
    await subscription_of(services, command).remove_rule(command.rule)
