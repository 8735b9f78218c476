"""Documents as callers send them: merge patch (RFC 7396) with the router's additions. Pure.

A change is merged into the stored document; the result is checked as one (`relevo.router.model`).
A property that is null goes back to its default; maps of labels merge by key; arrays are replaced.
An object of another `kind` replaces the old one. Each `check_…` function raises with a pointer at
the fault; `at` is the place of the value.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import force_setattr

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.kernel.decoding import SHOWN_MAX, escape, json_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Document = dict[str, Any]

MAPS: Final = frozenset({"labels", "tags", "labelsToUpsert"})
"""Properties whose keys are chosen by the caller."""
SECRETS: Final = frozenset({"functionKey", "appKey", "clientSecret"})
"""Properties that are kept and used, and never shown."""
OWN_WORDS: Final = MAPS | {"value"}
"""Properties whose content is the caller's."""
_OF_SELECTORS: Final = frozenset({"status", "expiresAt"})
"""Properties that the service adds to selectors; ignored in requests."""
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
    """Return a document without the service's properties in selectors."""
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

    `jsonb` has no powers of ten: 1e22 comes back as an integer.
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

    So hidden and service properties survive a document that is read and sent back.
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


_FIRST: Final = datetime.min.replace(microsecond=1, tzinfo=UTC)
_LAST: Final = datetime.max.replace(microsecond=999_998, tzinfo=UTC)
"""The driver takes the instants before and after these for infinity, which nothing reckons with."""


def check_id(text: str, at: str) -> None:
    """Refuse an id that is empty, longer than 256 characters, or has control characters."""
    if not 1 <= len(text) <= limits.ROUTER_ID_LENGTH_MAX:
        raise InvalidValue(
            f"an id has 1 to {limits.ROUTER_ID_LENGTH_MAX} characters, not {len(text)}", pointer=at
        )
    if not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text):
        raise InvalidValue("an id may not contain control characters", pointer=at)


def check_labels(maps: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse labels and tags beyond the bounds, which hold for all of a resource together."""
    for at, labels in maps.items():
        if len(labels) > limits.ROUTER_LABELS_MAX:
            raise InvalidValue(
                f"there are {len(labels)} entries; at most {limits.ROUTER_LABELS_MAX} are allowed",
                pointer=at,
            )
        for key, value in labels.items():
            check_key(key, f"{at}/{escape(key[:SHOWN_MAX])}")
            check_label_value(value, f"{at}/{escape(key)}")
    size = sum(len(msgspec.json.encode(labels)) for labels in maps.values())
    if size > limits.ROUTER_LABELS_BYTES_MAX:
        raise TooLarge(
            f"labels and tags have {size} bytes together; at most"
            f" {limits.ROUTER_LABELS_BYTES_MAX} are allowed"
        )


def check_key(key: str, at: str) -> None:
    """Refuse the key of a label that is empty or too long."""
    if not 1 <= len(key) <= limits.ROUTER_LABEL_KEY_LENGTH_MAX:
        raise InvalidValue(
            f"the key of a label has 1 to {limits.ROUTER_LABEL_KEY_LENGTH_MAX} characters, not"
            f" {len(key)}",
            pointer=at,
        )


def check_label_value(value: Any, at: str) -> None:
    """Refuse a value that is no text, number or boolean, and text that is too long."""
    match value:
        case str() if len(value) > limits.ROUTER_LABEL_TEXT_LENGTH_MAX:
            raise InvalidValue(
                f"the text of a label has at most {limits.ROUTER_LABEL_TEXT_LENGTH_MAX}"
                f" characters, not {len(value)}",
                pointer=at,
            )
        case float() if not math.isfinite(value):
            raise InvalidValue("a label cannot be infinite or NaN", pointer=at)
        case str() | bool() | int() | float():
            pass
        case _:
            raise InvalidValue(
                f"a label is a string, a number or a boolean, not {json_name(value)}", pointer=at
            )


def check_uri(text: str | None, at: str) -> None:
    """Refuse a text that is no HTTP URL; whether it may be called is checked at the call."""
    if text is None:
        return
    try:
        parts = urlsplit(text)
        fine = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        fine = False
    if not fine or any(character <= " " for character in text):
        raise InvalidValue("this is not an http or https URL", pointer=at)
    if "@" in parts.netloc:
        raise InvalidValue(
            "the URL holds a user or password; use the fields for credentials", pointer=at
        )


def check_unique(names: Sequence[str], at: str, field_name: str) -> None:
    """Refuse a duplicate name."""
    seen: set[str] = set()
    for number, one in enumerate(names):
        if one in seen:
            raise InvalidValue(
                f"{field_name} {one!r} is given twice; give it once",
                pointer=f"{at}/{number}/{field_name}",
            )
        seen.add(one)


def to_utc(part: msgspec.Struct, name: str) -> None:
    """Take a time without a zone for UTC, and every other to UTC."""
    value: datetime | None = getattr(part, name)
    if value is None or value.tzinfo is UTC:
        return
    if value.tzinfo is None:
        force_setattr(part, name, value.replace(tzinfo=UTC))
        return
    try:
        force_setattr(part, name, value.astimezone(UTC))
    except OverflowError:
        raise ValueError("this time is out of range") from None


def to_instant(part: msgspec.Struct, name: str) -> None:
    """The same for a time that goes into a column of its own: neither the first nor the last."""
    to_utc(part, name)
    value: datetime | None = getattr(part, name)
    if value is not None:
        force_setattr(part, name, bounded(value))


def bounded(instant: datetime) -> datetime:
    """Return an instant that a column can hold: a microsecond off at the very ends of time."""
    return min(max(instant, _FIRST), _LAST)
