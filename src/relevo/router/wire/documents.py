"""Documents as callers send them: merge patch (RFC 7396) with the router's additions. Pure.

A change is merged into what is stored; the result is checked as a whole (`relevo.router.model`).
Properties that are null are gone, and so back to their defaults; maps of labels merge by key;
arrays are replaced. An object of another `kind` takes the place of the old one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo import limits
from relevo.errors import InvalidValue, TooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

Document = dict[str, Any]

MAPS: Final = frozenset({"labels", "tags", "labelsToUpsert"})
"""Properties whose keys are the caller's own words."""
SECRETS: Final = frozenset({"functionKey", "appKey", "clientSecret"})
"""Properties that are kept and used, and never shown."""
OWN_WORDS: Final = MAPS | {"value"}
"""Properties in which nothing is of our vocabulary."""
_OF_SELECTORS: Final = frozenset({"status", "expiresAt"})
"""What the service writes into the selectors of a job; in requests it is ignored."""
_OWNS_ID_LABEL: Final = frozenset({"queues", "workers"})
ID_LABEL: Final = "Id"


def merged(kind: str, current: Mapping[str, Any] | None, change: Mapping[str, Any]) -> Document:
    """Return a stored document with a change merged into it, neither of which is touched.

    `current` may hold structs and times and is None for what does not exist yet. Raises
    `InvalidValue` for a change that is nested too deeply; nothing else is checked here.

    >>> merged("queues", {"name": "a", "labels": {"x": 1}}, {"name": None, "labels": {"y": 2}})
    {'labels': {'x': 1, 'y': 2}}
    """
    _check_depth(change, limits.ROUTER_DOCUMENT_DEPTH_MAX)
    old = without_nulls(msgspec.to_builtins(current or {}))
    given = dict(change)
    labels = given.get("labels")
    if kind in _OWNS_ID_LABEL and isinstance(labels, dict):
        given["labels"] = {key: value for key, value in labels.items() if key != ID_LABEL}
    result: Document = _merged(old, given)
    return result


def check_size(change: Any) -> None:
    """Refuse a change of a job or worker with more values than any can have.

    It is merged and checked under the locks of others, so it must not take long.
    """
    most, open_ = limits.ROUTER_DOCUMENT_VALUES_MAX, [change]
    count = 0
    while open_:
        value = open_.pop()
        if isinstance(value, dict | list):
            count += len(value)
            if count > most:
                raise TooLarge(f"the document has more than {most:,} values; send fewer at once")
            open_ += value.values() if isinstance(value, dict) else value


def shown(document: Any) -> Any:
    """Return a document without its secrets."""
    return _pick(document, lambda name, _: name not in SECRETS)


def written(document: Any) -> Any:
    """Return a document without what the service writes into selectors by itself."""
    return _pick(document, lambda name, _: name not in _OF_SELECTORS)


def secrets_in(document: Any) -> bool:
    """Whether there is a secret anywhere in a document."""
    return bool(shown(document) != document)


def with_secrets(document: Any, change: Any) -> Any:
    """Return a document with `change(secret)` in the place of every secret."""
    match document:
        case dict():
            return {
                name: change(each)
                if name in SECRETS and isinstance(each, str)
                else (each if name in OWN_WORDS else with_secrets(each, change))
                for name, each in document.items()
            }
        case list() | tuple():
            return [with_secrets(each, change) for each in document]
        case _:
            return document


def settled(value: Any) -> Any:
    """Return a value as `jsonb` gives it back, so that the same sent twice is no change.

    There are no powers of ten there: a number such as 1e22 comes back as a whole one.
    """
    match value:
        case dict():
            return {name: settled(each) for name, each in value.items()}
        case list() | tuple():
            return [settled(each) for each in value]
        case float() if abs(value) >= 1e16:
            return int(Decimal(repr(value)))
        case _:
            return value


def _merged(old: Any, new: Any) -> Any:
    match new:
        case dict():
            base = old if isinstance(old, dict) and not is_other_kind(old, new) else {}
            result = dict(base)
            for name, each in new.items():
                if each is None:
                    result.pop(name, None)
                elif name in MAPS and isinstance(each, dict):
                    result[name] = _merged_map(result.get(name), each)
                else:
                    result[name] = _merged(result.get(name), each)
            return result
        case list() | tuple():
            return _replaced(old if isinstance(old, list) else [], without_nulls(new))
        case _:
            return new


def _merged_map(old: Any, new: Document) -> Document:
    both = {**old, **new} if isinstance(old, dict) else new
    return {key: value for key, value in both.items() if value is not None}


def is_other_kind(old: Any, new: Any) -> bool:
    """Whether both are objects that say by `kind` that they are different things."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    before, after = old.get("kind"), new.get("kind")
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    return before.casefold() != after.casefold()


def _replaced(old: list[Any], new: list[Any]) -> list[Any]:
    """Return a new array; an element that is the old one as callers see it stays the old one.

    So what is hidden, and what the service has written, outlives being read and sent back.
    """
    left = [(_as_callers_see(one), one) for one in old]
    if all(seen == one for seen, one in left):
        left = []  # nothing that callers do not see
    result = []
    for each in new:
        seen = _as_callers_see(each)
        at = next((n for n, (one, _) in enumerate(left) if one == seen), None)
        if at is not None and not secrets_in(each):
            result.append(left.pop(at)[1])
        else:
            result.append(written(each))
    return result


def _as_callers_see(element: Any) -> Any:
    def visible(name: str, each: Any) -> bool:
        hidden = name in SECRETS or name in _OF_SELECTORS
        return not (hidden or (name == "expedite" and each is False))

    return _pick(element, visible)


def _pick(value: Any, keep: Any) -> Any:
    """Return a value with the properties that `keep(name, value)` wants, all the way down."""
    match value:
        case dict():
            return {
                name: each if name in OWN_WORDS else _pick(each, keep)
                for name, each in value.items()
                if keep(name, each)
            }
        case list() | tuple():
            return [_pick(each, keep) for each in value]
        case _:
            return value


def without_nulls(value: Any) -> Any:
    """Return a value without properties that are null; a label to upsert may be null, to remove it.

    >>> without_nulls([{"a": None, "labelsToUpsert": {"b": None}}])
    [{'labelsToUpsert': {'b': None}}]
    """
    match value:
        case dict():
            return {
                name: each if name in MAPS else without_nulls(each)
                for name, each in value.items()
                if each is not None
            }
        case list() | tuple():
            return [without_nulls(each) for each in value]
        case _:
            return value


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    if value and not left:
        raise InvalidValue(
            f"the document is nested more than {limits.ROUTER_DOCUMENT_DEPTH_MAX} deep"
        )
    for each in value:
        _check_depth(each, left - 1)
