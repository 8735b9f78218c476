"""Properties of queues, topics and subscriptions, by kind, and their bounds."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import Conflict, InvalidValue
from relevo.kernel import checking
from relevo.kernel.backoff import Backoff
from relevo.messaging.core import classes as priority_classes
from relevo.messaging.core import names, ordering, sharing
from relevo.messaging.model import (
    Aging,
    Deadline,
    EntityKind,
    EntityStatus,
    Ordering,
    PriorityClass,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

BACKOFF_FACTOR_MAX: Final = 100.0

FORWARDS: Final = ("forward_to", "forward_dead_lettered_to")

EventLevel = Literal["none", "dead", "all"]


class EntityProperties(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an entity can be told; `KINDS` says which kinds of entity have a property."""

    lock_duration: Annotated[
        float,
        Meta(description="Seconds that a receiver holds a message before it is delivered again."),
    ] = 60.0
    max_delivery_count: Annotated[
        int,
        Meta(description="Deliveries after which a message is dead-lettered."),
    ] = 10
    default_message_ttl: Annotated[
        float | None,
        Meta(description="The longest time to live of its messages, in seconds."),
    ] = None
    dead_letter_on_expiration: Annotated[
        bool,
        Meta(description="Whether expired messages are dead-lettered; else they are discarded."),
    ] = False
    dead_letter_on_filter_error: Annotated[
        bool,
        Meta(description="Whether a message is dead-lettered for which a rule has no result."),
    ] = True
    requires_session: Annotated[
        bool,
        Meta(description="Whether every message belongs to a session."),
    ] = False
    requires_duplicate_detection: Annotated[
        bool,
        Meta(description="Whether a message id is accepted only once per window."),
    ] = False
    duplicate_detection_window: Annotated[
        float,
        Meta(description="Seconds for which a message id is remembered."),
    ] = 600.0
    forward_to: Annotated[
        str | None,
        Meta(description="The queue or topic that gets every message instead."),
    ] = None
    forward_dead_lettered_to: Annotated[
        str | None,
        Meta(description="The queue or topic that gets dead-lettered messages instead."),
    ] = None
    auto_delete_on_idle: Annotated[
        float | None,
        Meta(description="Seconds without use after which the entity is deleted."),
    ] = None
    status: Annotated[
        EntityStatus,
        Meta(description="What may be done with it now."),
    ] = "active"
    max_size_bytes: Annotated[
        int,
        Meta(description="What all its messages may take together."),
    ] = limits.MESSAGE_ENTITY_BYTES_DEFAULT
    max_message_bytes: Annotated[
        int,
        Meta(description="What one message may take."),
    ] = limits.MESSAGE_BYTES_DEFAULT
    ordering: Annotated[
        Ordering,
        Meta(description="The policy by which messages are served."),
    ] = Aging()
    fair: Annotated[
        bool,
        Meta(description="Whether tenants, told apart by `fairness_key`, are served in turns."),
    ] = False
    classes: Annotated[
        tuple[PriorityClass, ...],
        Meta(description="Its priority classes."),
    ] = priority_classes.CLASSES
    classifier: Annotated[
        tuple[tuple[str, str], ...],
        Meta(description="Filters with the class that each gives; the first match decides."),
    ] = ()
    dlq_ttl: Annotated[
        float | None,
        Meta(description="Seconds after which dead-lettered messages are deleted."),
    ] = None
    abandon_backoff: Annotated[
        Backoff | None,
        Meta(description="How long an abandoned message is invisible when no delay is said."),
    ] = None
    max_lock_age: Annotated[
        float | None,
        Meta(description="Seconds for which a lock can be renewed in all."),
    ] = None
    events: Annotated[
        EventLevel,
        Meta(description="What goes to the event log: nothing, dead letters, or every step."),
    ] = "dead"
    user_metadata: Annotated[
        str,
        Meta(description="A text for people."),
    ] = ""

    def destinations(self) -> list[tuple[str, str]]:
        """Return the entities that messages may be forwarded to, with the property that says so."""
        found = [(name, getattr(self, name)) for name in FORWARDS]
        for one in self.classes:
            word, _, entity = one.on_breach.partition(":")
            found.append(("classes", entity if word == "forward" else None))
        return [(name, entity) for name, entity in found if entity is not None]


_QTS: Final = frozenset[EntityKind]({"queue", "topic", "subscription"})
_QS: Final = _QTS - {"topic"}
_QT: Final = _QTS - {"subscription"}
KINDS: Final[Mapping[str, frozenset[EntityKind]]] = {
    **dict.fromkeys(EntityProperties.__struct_fields__, _QTS),
    **dict.fromkeys(
        (
            "lock_duration", "max_delivery_count", "dead_letter_on_expiration", "requires_session",
            "forward_to", "forward_dead_lettered_to", "ordering", "fair", "dlq_ttl",
            "abandon_backoff", "max_lock_age",
        ),
        _QS,
    ),
    **dict.fromkeys(
        (
            "requires_duplicate_detection", "duplicate_detection_window", "max_size_bytes",
            "max_message_bytes",
        ),
        _QT,
    ),
    "dead_letter_on_filter_error": frozenset({"subscription"}),
}  # fmt: skip
"""Which kinds of entity have a property."""

FIXED: Final = frozenset({"requires_session", "requires_duplicate_detection"})
"""What cannot change once the entity exists."""

BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "lock_duration": (limits.MESSAGE_LOCK_SECONDS_MIN, limits.MESSAGE_LOCK_SECONDS_MAX),
    "max_delivery_count": (1, limits.MESSAGE_DELIVERIES_MAX),
    "default_message_ttl": (limits.MESSAGE_TTL_SECONDS_MIN, limits.MESSAGE_SECONDS_MAX),
    "duplicate_detection_window": (
        limits.MESSAGE_DUPLICATE_SECONDS_MIN, limits.MESSAGE_DUPLICATE_SECONDS_MAX,
    ),
    "auto_delete_on_idle": (limits.MESSAGE_IDLE_SECONDS_MIN, limits.MESSAGE_SECONDS_MAX),
    "max_size_bytes": (limits.MESSAGE_ENTITY_BYTES_MIN, 2**62),
    "max_message_bytes": (1, limits.MESSAGE_BYTES_MAX),
    "dlq_ttl": (limits.MESSAGE_DEAD_LETTER_TTL_SECONDS_MIN, limits.MESSAGE_SECONDS_MAX),
    "max_lock_age": (limits.MESSAGE_LOCK_SECONDS_MIN, limits.MESSAGE_SECONDS_MAX),
}  # fmt: skip
"""The least and the most of a property that is a number."""


def defined(kind: EntityKind, given: Mapping[str, Any]) -> EntityProperties:
    """Return the properties of a new entity, or refuse one by name."""
    return _checked(kind, given, EntityProperties())


def changed(
    kind: EntityKind, current: EntityProperties, given: Mapping[str, Any]
) -> EntityProperties:
    """Return the properties of an entity after a change, or refuse it by name."""
    for name in sorted(FIXED & set(given)):
        if given[name] != getattr(current, name):
            raise Conflict(
                f"{name} of a {kind} cannot change; create another {kind} and forward to it"
            )
    return _checked(kind, given, current)


def check_forward(source: str, destination: str, forwards: Mapping[str, str]) -> None:
    """Refuse to forward in a circle; `forwards` has what is forwarded now, keys in lower case.

    A topic leads to wherever its subscriptions forward to.
    """
    leads: dict[str, list[str]] = {}
    for key, following in forwards.items():
        leads.setdefault(_addressed(key), []).append(following)
    first = _addressed(source.lower())
    ways: list[tuple[str, ...]] = [(first, destination.lower())]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == first:
            raise InvalidValue(
                f"forwarding {source!r} to {destination!r} makes a circle: {' -> '.join(way)};"
                " forward to an entity outside of it",
                pointer="forward_to",
            )
        if way[-1] not in seen:
            seen.add(way[-1])
            ways += [(*way, following) for following in leads.get(way[-1], ())]


def _addressed(key: str) -> str:
    """The queue or topic that a message is sent to, so that it comes to an entity."""
    return key.partition(f"/{names.SUBSCRIPTIONS}/")[0]


def _checked(
    kind: EntityKind, given: Mapping[str, Any], current: EntityProperties
) -> EntityProperties:
    for name in given:
        if name not in KINDS or kind not in KINDS[name]:
            known = ", ".join(sorted(one for one, kinds in KINDS.items() if kind in kinds))
            raise InvalidValue(
                f"a {kind} has no property {name!r}; it has {known}", pointer=str(name)
            )
    plain = {
        name: checking.seconds(value) if isinstance(value, timedelta) else value
        for name, value in given.items()
    }
    try:
        found = msgspec.convert(
            msgspec.to_builtins({**msgspec.structs.asdict(current), **plain}), EntityProperties
        )
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue(f"a {kind} cannot have these properties: {error}") from error
    for name, (low, high) in BOUNDS.items():
        value = getattr(found, name)
        if value is not None and not low <= value <= high:
            raise InvalidValue(
                f"{name} of a {kind} is {value:g}; it must be from {low:g} to {high:g}",
                pointer=name,
            )
    return _consistent(kind, found)


def _consistent(kind: EntityKind, found: EntityProperties) -> EntityProperties:
    ordering.checked(found.ordering, fair=found.fair)
    checking.text(
        "user_metadata", found.user_metadata, limits.MESSAGE_METADATA_LENGTH_MAX, of=f"a {kind}"
    )
    for name in FORWARDS:
        if (destination := getattr(found, name)) is not None:
            names.check(destination, "queue", pointer=name)
    if found.abandon_backoff is not None:
        _check_backoff(found.abandon_backoff)
    if found.requires_session and found.forward_to is not None:
        raise InvalidValue(
            f"a {kind} that requires sessions cannot forward; drop forward_to or requires_session",
            pointer="forward_to",
        )
    if found.max_lock_age is not None and found.max_lock_age < found.lock_duration:
        raise InvalidValue(
            f"max_lock_age is {found.max_lock_age:g} seconds, less than the lock_duration of"
            f" {found.lock_duration:g}",
            pointer="max_lock_age",
        )
    ordered = priority_classes.checked_classes(found.classes)
    for _, name in found.classifier:
        priority_classes.named(ordered, name, "classifier")
    return msgspec.structs.replace(found, classes=ordered)


def _check_backoff(backoff: Backoff) -> None:
    low, high = backoff.jitter
    good = 0 <= backoff.first <= backoff.longest <= limits.MESSAGE_SECONDS_MAX
    if not (good and 1 <= backoff.factor <= BACKOFF_FACTOR_MAX and 0 <= low <= high <= 2):
        raise InvalidValue(
            f"abandon_backoff is {backoff}; first must be at least 0 and not more than longest,"
            f" factor from 1 to {BACKOFF_FACTOR_MAX:g}, jitter two numbers from 0 to 2, the"
            " smaller first",
            pointer="abandon_backoff",
        )


def decided(properties: EntityProperties, kind: EntityKind) -> dict[str, Any]:
    """Return the columns of an entity that follow from its properties: statements decide by them.

    The rank of a message is a sum of its arrival (`rank_by_time`), an offset of its class and its
    priority times `rank_step`; see `core/ordering.py`.
    """
    policy = properties.ordering
    backoff = properties.abandon_backoff
    own = {
        name: getattr(properties, name)
        for name in ("status", "fair", "max_lock_age", "max_delivery_count", "forward_to", "events")
    }
    return {
        **own,
        "is_plain": kind == "queue"
        and not (properties.classifier or properties.forward_to or properties.requires_session)
        and not properties.fair,
        "policy": type(policy).__name__.lower(),
        "rank_by_time": isinstance(policy, Aging | Deadline),
        "rank_step": ordering.step(policy),
        "floor_patience": sharing.patience(policy.floor_share)
        if isinstance(policy, Aging)
        else None,
        "has_sessions": properties.requires_session,
        "lock_seconds": properties.lock_duration,
        "ttl": properties.default_message_ttl,
        "dead_letter_ttl": properties.dlq_ttl,
        "dead_letter_expired": properties.dead_letter_on_expiration,
        "backoff_first": backoff and backoff.first,
        "backoff_factor": backoff and backoff.factor,
        "backoff_longest": backoff and backoff.longest,
        "backoff_low": backoff and backoff.jitter[0],
        "backoff_high": backoff and backoff.jitter[1],
        "forward_dead_to": properties.forward_dead_lettered_to,
        "duplicate_window": properties.duplicate_detection_window
        if properties.requires_duplicate_detection
        else None,
        "idle_seconds": properties.auto_delete_on_idle,
        "max_bytes": None if kind == "subscription" else properties.max_size_bytes,
    }


def class_rows(
    properties: EntityProperties, stored: Mapping[int, PriorityClass]
) -> list[dict[str, Any]]:
    """Return all classes of an entity as they are stored; `stored` has those of before, by number.

    A number stays with its name. A class that is not listed any more is retired: messages that wait
    keep it, new ones do not get it.
    """
    listed = {one.name.lower(): one for one in properties.classes}
    numbers = {one.name.lower(): number for number, one in stored.items()}
    free = itertools.count(max(stored, default=0) + 1)
    rows = [
        _class_row(properties, numbers.get(name) or next(free), one, retired=False)
        for name, one in listed.items()
    ]
    rows += [
        _class_row(properties, number, one, retired=True)
        for number, one in stored.items()
        if one.name.lower() not in listed
    ]
    return rows


def _class_row(
    properties: EntityProperties, number: int, one: PriorityClass, *, retired: bool
) -> dict[str, Any]:
    policy, fair = properties.ordering, properties.fair
    same = {
        name: getattr(one, name)
        for name in (
            "name", "base", "weight", "slo", "express", "preempts", "preemptible", "on_breach",
        )
    }  # fmt: skip
    return {
        **same,
        "number": number,
        "low": one.priorities[0],
        "high": one.priorities[1],
        "rank_offset": ordering.offset(policy, one),
        "tier": ordering.tier(policy, one, fair=fair),
        "retired": retired,
    }
