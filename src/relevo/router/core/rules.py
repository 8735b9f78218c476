"""Rules: the value for an input, converted to the type that its place needs.

Pure. Functions and webhooks answer elsewhere (`calling`): a rule of that kind takes its value from
the answers that were fetched before. Whatever is wrong with a value is a `RuleFailed` that says
what was expected and what came; answers of the outside are never quoted whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, assert_never

from msgspec import Struct

from relevo import limits
from relevo.errors import ExpressionFailed, InvalidExpression, RuleFailed
from relevo.kernel.expressions import powerfx
from relevo.kernel.labels import OPERATORS, Operator, Value
from relevo.router.core.selectors import QueueSelector, WorkerSelector
from relevo.router.wire.policies import (
    DirectMapRule,
    ExpressionRule,
    FunctionRule,
    RouterRule,
    StaticRule,
    WebhookRule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ExternalRule: TypeAlias = FunctionRule | WebhookRule

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_NUMBER_LENGTH_MAX: Final = 64
_OPERATORS: Final[Mapping[str, Operator]] = {name.lower(): name for name in OPERATORS}
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that JSON can carry and the database cannot keep."""


class RuleCall(Struct, frozen=True):
    """A call to the outside that a rule needs before it has a value."""

    place: str
    """Which rule of the policy it is, as a JSON pointer; the key of its answer."""
    rule: ExternalRule
    payload: dict[str, Any]

    def __repr__(self) -> str:
        return f"Call(place={self.place!r})"  # the rule may hold secrets


class RuleAnswer(Struct, frozen=True):
    """The answer to a call: a JSON value, or why there is none."""

    value: Any = None
    failure: str | None = None


Answers: TypeAlias = Mapping[str, RuleAnswer]


def is_external(rule: RouterRule) -> TypeGuard[ExternalRule]:
    """Say whether a rule has its value only after a call to the outside."""
    return isinstance(rule, FunctionRule | WebhookRule)


def value_of(rule: RouterRule, payload: Mapping[str, Any], answers: Answers, place: str) -> Any:
    """Return the value of the rule at `place`; raises `RuleFailed` if it has none."""
    match rule:
        case StaticRule():
            return rule.value
        case ExpressionRule():
            try:
                return powerfx.compiled(rule.expression)(payload)
            except (ExpressionFailed, InvalidExpression) as error:
                raise RuleFailed(error.message) from None
        case DirectMapRule():
            return payload.get("job", {})
        case FunctionRule() | WebhookRule():
            answer = answers.get(place, RuleAnswer(failure="it was not called"))
            if answer.failure is not None:
                raise RuleFailed(answer.failure)
            return answer.value
        case _:
            assert_never(rule)


def number(value: Any) -> float:
    """Return a value that must be a number; text that writes one out is taken for it."""
    if isinstance(value, str) and len(value) <= _NUMBER_LENGTH_MAX and _NUMBER.fullmatch(value):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise RuleFailed(f"a number was expected, and the rule gave {shown(value)}")
    return value


def priority(value: Any) -> int:
    """Return a rule's value as a priority: fractions are cut off, the ends of the scale hold."""
    least, most = limits.ROUTER_PRIORITY_MIN, limits.ROUTER_PRIORITY_MAX
    return math.trunc(min(most, max(least, number(value))))


def condition(value: Any) -> bool:
    """Return a rule's value as a decision: a boolean, or one of its names."""
    if isinstance(value, bool):
        return value
    if value == "true":
        return True
    if value == "false":
        return False
    raise RuleFailed(f"true or false was expected, and the rule gave {shown(value)}")


def score(value: Any) -> float:
    """Return a rule's value as the score of one worker."""
    found = number(value)
    try:
        whole = float(found)
    except OverflowError:
        whole = math.inf
    if not math.isfinite(whole):
        raise RuleFailed("the rule gave a score beyond all numbers")
    return whole


def scores(value: Any, workers: Sequence[str]) -> dict[str, float]:
    """Return a rule's value as scores by worker id; workers without a valid one are left out."""
    if not isinstance(value, Mapping):
        raise RuleFailed(f"scores by worker id were expected, and the rule gave {shown(value)}")
    found: dict[str, float] = {}
    for worker in workers:
        try:
            found[worker] = score(value.get(worker))
        except RuleFailed:
            continue
    return found


def queue_selectors(rule: RouterRule, value: Any) -> tuple[QueueSelector, ...]:
    """Return the value of a rule as selectors of queues."""
    return tuple(_asked(one, index) for index, one in enumerate(_listed(rule, value)))


def worker_selectors(rule: RouterRule, value: Any) -> tuple[WorkerSelector, ...]:
    """Return the value of a rule as selectors of workers, which may expire and expedite."""
    return tuple(_asked_of_worker(one, index) for index, one in enumerate(_listed(rule, value)))


def _listed(rule: RouterRule, value: Any) -> Sequence[Any]:
    """Return what should be selectors; of a direct map, each label becomes one that is equal."""
    if isinstance(rule, DirectMapRule):
        value = [{"key": key, "labelOperator": "equal", "value": one} for key, one in value.items()]
    if not isinstance(value, list | tuple):
        raise RuleFailed(f"a list of selectors was expected, and the rule gave {shown(value)}")
    if len(value) > limits.ROUTER_SELECTORS_MAX:
        raise RuleFailed(
            f"the rule gave {len(value)} selectors; at most {limits.ROUTER_SELECTORS_MAX} are"
            " allowed"
        )
    return value


def _asked(given: Any, index: int) -> QueueSelector:
    if not isinstance(given, Mapping):
        raise RuleFailed(f"selector {index} is {shown(given)} instead of an object with a key")
    key = given.get("key")
    if not isinstance(key, str) or not 0 < len(key) <= limits.ROUTER_LABEL_KEY_LENGTH_MAX:
        raise RuleFailed(
            f"selector {index} needs a key of 1 to {limits.ROUTER_LABEL_KEY_LENGTH_MAX} characters"
        )
    if _UNSTORABLE.search(key):
        raise RuleFailed(f"the key of selector {index} has characters that cannot be kept")
    # Published samples of Azure differ in the name.
    written = given.get("labelOperator", given.get("operator"))
    operator = _OPERATORS.get(written.lower()) if isinstance(written, str) else None
    if operator is None:
        raise RuleFailed(
            f"selector {index} has the operator {shown(written)}; use one of {', '.join(OPERATORS)}"
        )
    return QueueSelector(key, operator, _label_value(given.get("value"), index))


def _asked_of_worker(given: Any, index: int) -> WorkerSelector:
    one = _asked(given, index)
    expedite = given.get("expedite")
    if expedite is not None and not isinstance(expedite, bool):
        raise RuleFailed(f"expedite of selector {index} is neither true nor false")
    return WorkerSelector(
        one.key,
        one.label_operator,
        one.value,
        expires_after_seconds=_seconds(given.get("expiresAfterSeconds"), index),
        expedite=bool(expedite),
    )


def _label_value(value: Any, index: int) -> Value | None:
    if isinstance(value, str):
        if len(value) > limits.ROUTER_LABEL_TEXT_LENGTH_MAX or _UNSTORABLE.search(value):
            raise RuleFailed(
                f"the value of selector {index} is longer than"
                f" {limits.ROUTER_LABEL_TEXT_LENGTH_MAX} characters or cannot be kept"
            )
        return value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise RuleFailed(
        f"the value of selector {index} is {shown(value)}; text, a number or a boolean is needed"
    )


def _seconds(value: Any, index: int) -> float | None:
    if value is None:
        return None
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not 0 < value <= limits.ROUTER_SECONDS_MAX:
        raise RuleFailed(f"expiresAfterSeconds of selector {index} must be a number above 0")
    return float(value)


def shown(value: Any) -> str:
    """Name a value by its kind, and plain short ones by themselves."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value:.6g}" if abs(value) < 1e300 else "a huge number"
        case str():
            return (
                f"the text {value!r}" if len(value) <= 40 else f"a text of {len(value)} characters"
            )
        case Mapping():
            return "an object"
        case _:
            return "a list"
