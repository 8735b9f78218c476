"""Acceptance: which copies a message becomes, of which class, and how long each lives.

    accepted([(definition, Outgoing(message, body, message_id))]).columns()

The result is what `relevo.accept_messages` takes. It names the version of every definition it was
evaluated with; the statement stores nothing if one of them is not the present one any more.

Entities that forward get the copy like any other; the statement moves it on to the destination,
whose rules apply to it there. So a copy never depends on the definition of another entity than the
one it is sent to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import CallerError, InvalidValue, TooLarge
from relevo.kernel import checking
from relevo.kernel.expressions import sqlfilter
from relevo.messaging import states
from relevo.messaging.core import classes, heads
from relevo.messaging.core.classes import Classifier, Inflation, MessageClass
from relevo.messaging.core.content import BODY_KINDS, Body, header_bytes
from relevo.messaging.core.entities import EntityProperties
from relevo.messaging.core.rules import Copy, RuleFailure, TopicRules
from relevo.messaging.model import EntityKind, Message

QUEUE: Final = 0
DEAD_LETTERS: Final = 1
NO_SESSION: Final = "Session id is null."
HEADERS_TOO_LARGE: Final = "HeaderSizeExceeded"
_SYSTEM: Final = tuple(
    {known.field: None for known in sqlfilter.SYSTEM_PROPERTIES if known.writable}
)
_NO_TTL: Final = (None, None, None)
_WHOLE: Final = frozenset({"entities", "versions", "ids", "bodies", "of", "failures"})
_SAME: Final = frozenset(
    {"origins", "kinds", "places", "sub_queues", "classes", "priorities", "sizes"}
)
"""Columns that may have one value for all."""


class Definition(Struct, frozen=True, kw_only=True):
    """An entity as messages are evaluated with it; a topic with its subscriptions and their rules.

    A change of a subscription or of a rule makes a new version of the topic, too.
    """

    id: int
    kind: EntityKind
    name: str
    path: str
    version: int
    properties: EntityProperties
    numbers: Mapping[str, int]
    """Of its classes, by their names in lower case."""
    classifier: Classifier = ()
    usual: MessageClass | None = None
    """The class of messages that say nothing about it; None if a filter decides."""
    subscriptions: Mapping[str, Definition] = {}
    """By name, as it is stored."""
    rules: TopicRules = TopicRules()
    forwards: bool = False
    """Whether it, or a subscription of it, may pass on messages that are accepted."""
    cost: int = 1
    """Filters and copies that evaluating one message takes, about."""


class Outgoing(Struct, frozen=True):
    """A message on its way to an entity."""

    message: Message
    body: Body
    message_id: str
    hops: int = 0
    """How often it was forwarded."""
    enqueued: int | None = None
    """Its number at the first entity of a chain of forwards."""
    expires: datetime | None = None
    """When it expires, of a message that was forwarded."""
    max_class: str | None = None
    """The highest class that its sender may use."""
    inflation: Inflation = "downgrade"
    dead: str | None = None
    """Why it was dead-lettered where it was forwarded from, as JSON."""
    arrived: bool = False
    """Whether it was stored before: then it cannot be refused, and is dead-lettered instead."""


class Acceptance(Struct):
    """The columns of `relevo.accept_messages`: per definition, per message and per copy."""

    entities: list[int] = []
    versions: list[int] = []
    origins: list[int] = []
    ids: list[str] = []
    bodies: list[bytes] = []
    kinds: list[int] = []
    dues: list[datetime | None] = []
    of: list[int] = []
    """The message of the copy, counted from 1."""
    places: list[int] = []
    sub_queues: list[int] = []
    classes: list[int] = []
    priorities: list[int] = []
    sizes: list[int] = []
    ttls: list[float | None] = []
    expires: list[datetime | None] = []
    keys: list[str | None] = []
    sessions: list[str | None] = []
    copy_ids: list[str | None] = []
    heads: list[str | None] = []
    deads: list[str | None] = []
    hops: list[int | None] = []
    enqueued: list[int | None] = []
    failures: list[int] = []
    """Subscriptions, once per rule that failed and is only counted."""

    def columns(self) -> tuple[list[Any], ...]:
        """Return the arguments of the statement.

        A column without values is empty, and one whose values are all the same has one, because
        the driver looks at each value of an array several times.
        """
        columns = []
        for name, column in zip(self.__struct_fields__, msgspec.structs.astuple(self), strict=True):
            if name in _WHOLE or not column or column.count(column[0]) < len(column):
                columns.append(column)
            elif column[0] is None:
                columns.append([])
            else:
                columns.append(column[:1] if name in _SAME else column)
        return tuple(columns)


_COPY_COLUMNS: Final = Acceptance.__struct_fields__[7:-1]


class _MessageView(Struct, frozen=True):
    """A message as filters see it."""

    system: Mapping[str, Any]
    properties: Mapping[str, Any]


_Row = tuple[Any, ...]
"""A copy, in the order of the columns from `of` on."""
_Stored = tuple[int, str | None]
"""The size of a message, and its head."""


def accepted(
    calls: Sequence[tuple[Definition, Outgoing]], *, now: datetime | None = None
) -> Acceptance:
    """Return what becomes of messages at the entities that they are sent to.

    One that may not be sent refuses all: raises `EntityDisabled`, `InvalidValue` or `Forbidden`.
    `now` is the time of arrival that filters see.
    """
    found = Acceptance()
    versions: dict[tuple[int, int], None] = {}
    rows: list[_Row] = []
    for definition, outgoing in calls:
        versions[definition.id, definition.version] = None
        found.origins.append(definition.id)
        found.ids.append(outgoing.message_id)
        found.bodies.append(outgoing.body.data)
        found.kinds.append(BODY_KINDS.index(outgoing.body.kind))
        if not outgoing.arrived:
            states.require_sending(definition.path, definition.properties.status)
        at = outgoing.message.at
        if definition.kind == "topic" and at is None:
            rows += _routed(definition, outgoing, len(found.ids), now, found.failures)
        else:
            row, lives = _addressed(definition, outgoing, len(found.ids))
            rows.append(row)
            at = at if lives else None
        found.dues.append(at)
    found.entities = [id_ for id_, _ in versions]
    found.versions = [version for _, version in versions]
    for name, column in zip(_COPY_COLUMNS, zip(*rows, strict=True), strict=bool(rows)):
        setattr(found, name, list(column))
    return found


def predicate(text: str) -> classes.Predicate:
    """Return a compiled filter of a classifier. Raises `InvalidExpression`."""
    select = sqlfilter.compiled(text)

    def selects(message: Message) -> bool | None:
        view = _view(message, message.message_id, None)
        return select(sqlfilter.scope(view.system, view.properties))

    return selects


def _addressed(place: Definition, outgoing: Outgoing, of: int) -> tuple[_Row, bool]:
    """The one copy of a message to a queue or a subscription, or of one that waits at a topic.

    Also says whether it lives there, or is dead-lettered.
    """
    message = outgoing.message
    dead: tuple[str, str] | None = None
    try:
        if place.properties.requires_session and message.session_id is None:
            raise InvalidValue(
                f"{place.path!r} requires sessions and the message has no session_id; give it one",
                pointer="session_id",
            )
        chosen = _class(place, message, outgoing)
    except InvalidValue as error:
        if not outgoing.arrived:
            raise
        session = error.pointer == "session_id"
        dead = (NO_SESSION, "") if session else (type(error).__name__, error.message)
        message = msgspec.structs.replace(message, priority=None, priority_class=None)
        chosen = _class(place, message, outgoing)
    return _row(place, message, outgoing, of, chosen, dead=dead), dead is None


def _routed(
    topic: Definition, outgoing: Outgoing, of: int, now: datetime | None, failures: list[int]
) -> Iterator[_Row]:
    """The copies of a message to a topic; adds failures of rules that are only counted."""
    message = _sendable(topic, outgoing)
    view = _view(message, outgoing.message_id, now)
    routing = topic.rules.route(view)
    stored = _stored(message, outgoing)
    for copy in routing.copies:
        place = topic.subscriptions[copy.subscription]
        changed = _message_of(message, view, copy)
        chosen = _copy_class((topic, place), message, changed, outgoing)
        lost = place.properties.requires_session and changed.session_id is None
        yield _row(
            place,
            changed,
            outgoing,
            of,
            chosen,
            topic=topic,
            dead=(NO_SESSION, "") if lost else None,
            stored=stored if changed is message else None,
        )
    buried: set[str] = set()
    for failure in routing.failures:
        place = topic.subscriptions[failure.subscription]
        if not place.properties.dead_letter_on_filter_error:
            failures.append(place.id)
        elif failure.subscription not in buried:
            buried.add(failure.subscription)
            chosen = _copy_class((topic, place), message, message, outgoing)
            yield _row(place, message, outgoing, of, chosen, topic=topic, dead=_reason(failure))


def _reason(failure: RuleFailure) -> tuple[str, str]:
    error: CallerError = failure.error
    name = HEADERS_TOO_LARGE if isinstance(error, TooLarge) else type(error).__name__
    return name, f"rule {failure.rule}: {error.message}"[: limits.MESSAGE_REASON_LENGTH_MAX]


def _class(place: Definition, message: Message, outgoing: Outgoing) -> MessageClass:
    says_nothing = message.priority is None and message.priority_class is None
    if says_nothing and place.usual and not message.properties and outgoing.max_class is None:
        return place.usual
    found = classes.classify(message, place.properties.classes, place.classifier)
    return classes.guard(found, place.properties.classes, outgoing.max_class, outgoing.inflation)


def _copy_class(
    way: tuple[Definition, Definition], message: Message, changed: Message, outgoing: Outgoing
) -> MessageClass:
    """The class of a copy at a subscription. An action may raise it above the sender's bound."""
    topic, place = way
    changed = _known(topic, place, changed)
    if outgoing.max_class is None:
        return _class(place, changed, outgoing)
    message = _known(topic, place, message)
    before = classes.classify(message, place.properties.classes, place.classifier)
    after = classes.classify(changed, place.properties.classes, place.classifier)
    return after if after.of.base > before.of.base else _class(place, changed, outgoing)


def _sendable(topic: Definition, outgoing: Outgoing) -> Message:
    """The message, whose priority and class are some of the topic's, or refuse it."""
    message = outgoing.message
    try:
        classes.classify(message, topic.properties.classes)
    except InvalidValue:
        if not outgoing.arrived:
            raise
        return msgspec.structs.replace(message, priority=None, priority_class=None)
    return message


def _known(topic: Definition, place: Definition, message: Message) -> Message:
    """The message with a class that the subscription has, or with a priority of its class."""
    name = message.priority_class
    if name is None or name.lower() in place.numbers:
        return message
    of = classes.named(topic.properties.classes, name, "priority_class")
    priority = of.base if message.priority is None else message.priority
    return msgspec.structs.replace(message, priority_class=None, priority=priority)


def _row(
    place: Definition,
    message: Message,
    outgoing: Outgoing,
    of: int,
    chosen: MessageClass,
    *,
    topic: Definition | None = None,
    dead: tuple[str, str] | None = None,
    stored: _Stored | None = None,
) -> _Row:
    """A copy; `stored` is what it has in common with the other copies of its message, if any."""
    asked = None
    if chosen.requested is not None:
        marked = {**message.properties, classes.REQUESTED: chosen.requested}
        message = msgspec.structs.replace(message, properties=marked)
        stored = None
    if place.kind == "topic" or place.properties.forward_to is not None:
        asked = _asked(message, outgoing, chosen)
        stored = None
    size, head = stored or _stored(message, outgoing, asked)
    changed_id = message.message_id if topic is not None else None
    return (
        of,
        place.id,
        DEAD_LETTERS if dead else QUEUE,
        place.numbers[chosen.of.name.lower()],
        chosen.priority,
        size,
        _ttl(message, place, topic),
        outgoing.expires,
        message.fairness_key or None,
        message.session_id if place.properties.requires_session and not dead else None,
        changed_id if changed_id != outgoing.message_id else None,
        head,
        _dead(place, dead) if dead else outgoing.dead,
        outgoing.hops or None,
        outgoing.enqueued,
    )


def _stored(message: Message, outgoing: Outgoing, asked: heads.Asked | None = None) -> _Stored:
    size = header_bytes(message) + len(outgoing.body.data) + len(message.envelope or b"")
    return size, heads.encoded_head(message, asked)


def _asked(message: Message, outgoing: Outgoing, chosen: MessageClass) -> heads.Asked:
    """What another entity decides the class by, after this one; the bound of a sender stays."""
    if outgoing.max_class is not None:
        return heads.Asked(chosen.priority)
    return heads.Asked(message.priority, message.priority_class)


def _ttl(message: Message, place: Definition, topic: Definition | None) -> float | None:
    """Seconds to live: the shortest of what the message, its entity and its topic say."""
    own = None if message.ttl is None else checking.seconds(message.ttl)
    of_topic = topic and topic.properties.default_message_ttl
    given = (own, place.properties.default_message_ttl, of_topic)
    if given == _NO_TTL:
        return None
    least = min((ttl for ttl in given if ttl), default=limits.MESSAGE_SECONDS_MAX)
    return least if least < limits.MESSAGE_SECONDS_MAX else None


def _dead(place: Definition, dead: tuple[str, str]) -> str:
    reason, description = dead
    told = {"reason": reason, "description": description, "source": place.path}
    return msgspec.json.encode(told).decode()


def _view(message: Message, message_id: str | None, now: datetime | None) -> _MessageView:
    system = {field: getattr(message, field) for field in _SYSTEM}
    system["message_id"] = message_id
    if message.ttl is not None:
        seconds = min(checking.seconds(message.ttl), limits.MESSAGE_SECONDS_MAX)
        system["ttl"] = timedelta(seconds=seconds)
    system["enqueued_at"] = now
    properties = message.properties.items()
    return _MessageView(system, {name: heads.plain(value) for name, value in properties})


def _message_of(message: Message, view: _MessageView, copy: Copy) -> Message:
    """The message of a copy: the same one, unless an action has changed it."""
    if copy.rule is None:
        return message
    system = {field: copy.system.get(field) for field in _SYSTEM if field != "at"}
    if system["priority"] != view.system["priority"]:
        system["priority_class"] = None
    return msgspec.structs.replace(message, properties=copy.properties, **system)
