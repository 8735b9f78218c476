"""Priority classes: which one a message gets, and whether its service target is met.

The class is decided once, when the message is accepted, and stored with it. From then on neither
another classifier nor another list of classes moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from relevo.errors import ExpressionFailed, Forbidden, InvalidValue
from relevo.limits import MESSAGE_CLASSES_MAX, MESSAGE_PRIORITY_MAX, MESSAGE_WEIGHT_MAX
from relevo.messaging.core import names
from relevo.messaging.model import Message, PriorityClass

Predicate = Callable[[Message], bool | None]
"""A compiled filter: only True selects."""
Classifier = Sequence[tuple[Predicate, str]]
"""Filters with the class that the first fitting one gives, in order."""
TargetStatus = Literal["in", "at_risk", "out"]
Inflation = Literal["downgrade", "reject"]

CLASSES: Final = (
    PriorityClass(name="high", priorities=(7, 9), base=8, slo=10.0, express=True, weight=8),
    PriorityClass(name="normal", priorities=(3, 6), base=4, weight=3),
    PriorityClass(name="low", priorities=(0, 2), base=1, weight=1),
)
"""The classes of an entity that defines none."""
PRIORITY_DEFAULT: Final = 4
"""The class whose band has it is that of messages that say nothing; by default `normal`."""
PROPERTY: Final = "Priority"
"""The application property that names a class."""
REQUESTED: Final = "RelevoRequestedClass"
"""The application property with the class that a sender asked for and may not use."""
AT_RISK: Final = 0.8
"""The share of a target from which on it is at risk."""


class MessageClass(Struct, frozen=True):
    """The class of a message and its priority, which is always in the band of the class."""

    of: PriorityClass
    priority: int
    requested: str | None = None
    """The class that the sender asked for, where it got a lower one."""


def classify(
    message: Message, classes: Sequence[PriorityClass], classifier: Classifier = ()
) -> MessageClass:
    """Return the class of a message: the first that any of these gives.

    The class it names; the band of its priority; the classifier; its property `Priority`, if that
    is the name of a class; the default. A priority outside of the class it names counts as the
    nearest in the band, so that no class is left by way of the priority.
    """
    if message.priority is not None:
        checked_priority(message.priority)
    of = _chosen(message, classes, classifier)
    wanted = of.base if message.priority is None else message.priority
    return MessageClass(of, _within(of, wanted))


def guard(
    classified: MessageClass,
    classes: Sequence[PriorityClass],
    max_class: str | None,
    inflation: Inflation = "downgrade",
) -> MessageClass:
    """Return the class for a sender that may not go above `max_class`."""
    if max_class is None:
        return classified
    bound = _bound(classes, max_class)
    if classified.of.base <= bound.base:
        return classified
    if inflation == "reject":
        raise Forbidden(
            f"this key sends up to the class {bound.name!r}, not {classified.of.name!r}; send with"
            " a lower priority, or use a key that may"
        )
    return MessageClass(bound, _within(bound, classified.priority), requested=classified.of.name)


def named(classes: Sequence[PriorityClass], name: str, pointer: str) -> PriorityClass:
    """Return a class by its name, which ignores case, or refuse the name."""
    found = _find(classes, name)
    if found is None:
        known = ", ".join(one.name for one in classes)
        raise InvalidValue(f"there is no class {name!r}; the classes are {known}", pointer=pointer)
    return found


def checked_priority(priority: object) -> int:
    """Return a priority, or refuse what is none."""
    if not isinstance(priority, int) or not _is_priority(priority):
        raise InvalidValue(
            f"priority is {priority!r}; it must be a whole number from 0 to"
            f" {MESSAGE_PRIORITY_MAX}, where {MESSAGE_PRIORITY_MAX} is the most urgent",
            pointer="priority",
        )
    return priority


def band_of(classes: Sequence[PriorityClass], priority: int) -> PriorityClass:
    """Return the class whose band has a priority; the bands of checked classes cover all."""
    return next(one for one in classes if one.priorities[0] <= priority <= one.priorities[1])


def escalated(classes: Sequence[PriorityClass], of: PriorityClass) -> PriorityClass:
    """Return the next class above; the highest stays where it is."""
    higher = [one for one in classes if one.base > of.base]
    return min(higher, key=lambda one: one.base, default=of)


def target_status(wait: float, of: PriorityClass) -> TargetStatus | None:
    """Return how a wait of so many seconds stands to the target of a class, if it has one."""
    if of.slo is None:
        return None
    if wait > of.slo:
        return "out"
    return "in" if wait < AT_RISK * of.slo else "at_risk"


def checked_classes(classes: Sequence[PriorityClass]) -> tuple[PriorityClass, ...]:
    """Return classes whose bands cover 0 to 9 without overlapping, the highest first."""
    if not 1 <= len(classes) <= MESSAGE_CLASSES_MAX:
        raise InvalidValue(
            f"there are {len(classes)} classes; an entity has 1 to {MESSAGE_CLASSES_MAX}",
            pointer="classes",
        )
    for one in classes:
        _check_class(one)
    ordered = tuple(sorted(classes, key=lambda one: one.priorities, reverse=True))
    above = MESSAGE_PRIORITY_MAX + 1
    for one in ordered:
        low, high = one.priorities
        if high != above - 1:
            twice = high >= above
            raise InvalidValue(
                f"priority {above if twice else above - 1} belongs to {'two' if twice else 'no'}"
                f" class{'es' if twice else ''}; the bands must cover 0 to {MESSAGE_PRIORITY_MAX}"
                f" once: {_shown(ordered)}",
                pointer=f"classes/{one.name}/priorities",
            )
        above = low
    if above != 0:
        raise InvalidValue(
            f"priority {above - 1} belongs to no class; the bands must cover 0 to"
            f" {MESSAGE_PRIORITY_MAX} once: {_shown(ordered)}",
            pointer="classes",
        )
    if len({one.name.lower() for one in ordered}) < len(ordered):
        raise InvalidValue(f"two classes have the same name: {_shown(ordered)}", pointer="classes")
    return ordered


def _chosen(
    message: Message, classes: Sequence[PriorityClass], classifier: Classifier
) -> PriorityClass:
    if message.priority_class is not None:
        return named(classes, message.priority_class, "priority_class")
    if message.priority is not None:
        return band_of(classes, message.priority)
    for predicate, name in classifier:
        if _selects(predicate, message):
            return named(classes, name, "classifier")
    word = message.properties.get(PROPERTY)
    found = _find(classes, word) if isinstance(word, str) else None
    return found or band_of(classes, PRIORITY_DEFAULT)


def _selects(predicate: Predicate, message: Message) -> bool:
    """A filter that has no result for this message does not select it, and hurts no other."""
    try:
        return predicate(message) is True
    except ExpressionFailed:
        return False


def _bound(classes: Sequence[PriorityClass], max_class: str) -> PriorityClass:
    """The highest class that `max_class` allows here.

    A key is for all entities, and one may have other classes: there the band counts that the class
    of this name has by default; a name that is unknown altogether allows the lowest class alone.
    """
    usual = _find(CLASSES, max_class)
    lowest = min(classes, key=lambda one: one.base)
    return _find(classes, max_class) or (band_of(classes, usual.priorities[1]) if usual else lowest)


def _find(classes: Sequence[PriorityClass], name: str) -> PriorityClass | None:
    return next((one for one in classes if one.name.lower() == name.lower()), None)


def _within(of: PriorityClass, priority: int) -> int:
    return max(of.priorities[0], min(of.priorities[1], priority))


def _is_priority(value: object) -> bool:
    return type(value) is int and 0 <= value <= MESSAGE_PRIORITY_MAX


def _check_class(one: PriorityClass) -> None:
    names.check(one.name, "class", pointer="classes")
    low, high = one.priorities
    faults: Mapping[str, bool] = {
        f"priorities must be two numbers from 0 to {MESSAGE_PRIORITY_MAX}, the lower first": not (
            _is_priority(low) and _is_priority(high) and low <= high
        ),
        "base must be a priority of its band": not low <= one.base <= high,
        "slo must be more than 0 seconds, or None for no target": not (
            one.slo is None or one.slo > 0
        ),
        "slo_percentile must be between 0 and 1": not 0 < one.slo_percentile < 1,
        f"weight must be a whole number from 1 to {MESSAGE_WEIGHT_MAX}": not (
            1 <= one.weight <= MESSAGE_WEIGHT_MAX
        ),
        "reserved must be a number of slots, 0 for none": one.reserved < 0,
    }
    for fault, there in faults.items():
        if there:
            field = fault.split(maxsplit=1)[0]
            raise InvalidValue(
                f"{fault}; class {one.name!r} has {getattr(one, field)!r}",
                pointer=f"classes/{one.name}/{field}",
            )
    _check_breach(one)


def _check_breach(one: PriorityClass) -> None:
    word, _, entity = one.on_breach.partition(":")
    if word == "forward" and entity:
        names.check(entity, "queue", pointer=f"classes/{one.name}/on_breach")
    elif one.on_breach not in ("none", "escalate", "dead_letter"):
        raise InvalidValue(
            f"on_breach of class {one.name!r} is {one.on_breach!r}; it must be none, escalate,"
            " dead_letter or forward:<entity>",
            pointer=f"classes/{one.name}/on_breach",
        )


def _shown(classes: Sequence[PriorityClass]) -> str:
    return ", ".join(f"{one.name} {one.priorities[0]}-{one.priorities[1]}" for one in classes)
