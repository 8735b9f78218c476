"""The places that operations are declared for, so that each handler is written once.

A queue, a subscription and their dead-letter queues are received from in the same way; a queue and
a topic are sent to in the same way. `each` declares a handler at all places of a list: the route,
the scope and the fields of the path are the place's, the other fields are the command's.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar, Unpack

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import NotFound
from relevo.kernel.operation import OperationOptions, Operations, types_of
from relevo.messaging.core import names
from relevo.messaging.core.names import Path, SubQueue
from relevo.messaging.endpoints import Destination, Entity, Source
from relevo.messaging.handles import Queue, Subscription, Topic
from relevo.messaging.model import EntityKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.messaging.entities import EntityRecord
    from relevo.messaging.service import Messaging

H = TypeVar("H")

_NAME: Final = Meta(min_length=1, max_length=limits.MESSAGE_ENTITY_NAME_LENGTH_MAX)
_SHORT_NAME: Final = Meta(min_length=1, max_length=limits.MESSAGE_RULE_NAME_LENGTH_MAX)
QueueName = Annotated[str, _NAME, Meta(description="The queue's name.")]
TopicName = Annotated[str, _NAME, Meta(description="The topic's name.")]
SubscriptionName = Annotated[str, _SHORT_NAME, Meta(description="The subscription's name.")]


class Addressed:
    """A command about an entity."""

    __slots__ = ()
    kind: ClassVar[EntityKind]
    sub_queue: ClassVar[SubQueue | None] = None

    @property
    def address(self) -> Path:
        """The entity or sub-queue that the path of the request names."""
        raise NotImplementedError


class ByQueue(Addressed, Struct, frozen=True, kw_only=True):
    """Which queue."""

    kind: ClassVar[EntityKind] = "queue"
    queue: QueueName

    @property
    def address(self) -> Path:
        """The queue, or its sub-queue."""
        return Path(names.check(self.queue, "queue", pointer="/queue"), None, self.sub_queue)


class ByQueueDeadLetters(ByQueue, frozen=True, kw_only=True):
    """Which queue's dead letters."""

    sub_queue = "dead_letters"


class ByQueueTransfers(ByQueue, frozen=True, kw_only=True):
    """Which queue's dead letters of transfers."""

    sub_queue = "transfer_dead_letters"


class ByTopic(Addressed, Struct, frozen=True, kw_only=True):
    """Which topic."""

    kind: ClassVar[EntityKind] = "topic"
    topic: TopicName

    @property
    def address(self) -> Path:
        """The topic."""
        return Path(names.check(self.topic, "topic", pointer="/topic"))


class BySubscription(ByTopic, frozen=True, kw_only=True):
    """Which subscription."""

    kind: ClassVar[EntityKind] = "subscription"
    subscription: SubscriptionName

    @property
    def address(self) -> Path:
        """The subscription, or its sub-queue."""
        name = names.check(self.subscription, "subscription", pointer="/subscription")
        return Path(super().address.entity, name, self.sub_queue)


class BySubscriptionDeadLetters(BySubscription, frozen=True, kw_only=True):
    """Which subscription's dead letters."""

    sub_queue = "dead_letters"


class BySubscriptionTransfers(BySubscription, frozen=True, kw_only=True):
    """Which subscription's dead letters of transfers."""

    sub_queue = "transfer_dead_letters"


class Place(Struct, frozen=True, kw_only=True):
    """A kind of thing that requests are about."""

    noun: str
    """What its operations are called by: the group of commands."""
    called: str
    """What summaries call it."""
    route: str
    scope: str
    by: type[ByQueue | ByTopic]
    """The fields of its path, with an `address`."""


QUEUE: Final = Place(
    noun="messages", called="a queue", route="/v1/queues/{queue}",
    scope="queue:{queue}", by=ByQueue,
)  # fmt: skip
TOPIC: Final = Place(
    noun="topics.messages", called="a topic", route="/v1/topics/{topic}",
    scope="topic:{topic}", by=ByTopic,
)  # fmt: skip
SUBSCRIPTION: Final = Place(
    noun="subscriptions.messages", called="a subscription",
    route="/v1/topics/{topic}/subscriptions/{subscription}", scope="topic:{topic}",
    by=BySubscription,
)  # fmt: skip
_DEAD: Final = {"called": "a dead-letter queue"}
QUEUE_DEAD_LETTERS: Final = msgspec.structs.replace(
    QUEUE, noun="dead_letters", route=f"{QUEUE.route}/dead-letters", by=ByQueueDeadLetters, **_DEAD
)
SUBSCRIPTION_DEAD_LETTERS: Final = msgspec.structs.replace(
    SUBSCRIPTION, noun="subscriptions.dead_letters", route=f"{SUBSCRIPTION.route}/dead-letters",
    by=BySubscriptionDeadLetters, **_DEAD,
)  # fmt: skip
_TRANSFERS: Final = {"called": "a dead-letter queue of transfers"}
QUEUE_TRANSFERS: Final = msgspec.structs.replace(
    QUEUE, noun="dead_letters.transfers", route=f"{QUEUE.route}/transfer-dead-letters",
    by=ByQueueTransfers, **_TRANSFERS,
)  # fmt: skip
SUBSCRIPTION_TRANSFERS: Final = msgspec.structs.replace(
    SUBSCRIPTION, noun="subscriptions.dead_letters.transfers",
    route=f"{SUBSCRIPTION.route}/transfer-dead-letters", by=BySubscriptionTransfers, **_TRANSFERS,
)  # fmt: skip
DESTINATIONS: Final = (QUEUE, TOPIC)
ENTITIES: Final = (QUEUE, SUBSCRIPTION)
"""What messages are received from, without their dead-letter queues."""
SOURCES: Final = (*ENTITIES, QUEUE_DEAD_LETTERS, SUBSCRIPTION_DEAD_LETTERS)
"""What has operations of its own to receive and settle by."""
TRANSFERS: Final = (QUEUE_TRANSFERS, SUBSCRIPTION_TRANSFERS)
DEAD_LETTERS: Final = (QUEUE_DEAD_LETTERS, SUBSCRIPTION_DEAD_LETTERS, *TRANSFERS)


def each(
    operation: Operations,
    places: Sequence[Place],
    verb: str,
    route: str,
    permission: str,
    summary: str,
    *shared: OperationOptions,
    command: type[Struct] | None = None,
    **options: Unpack[OperationOptions],
) -> Callable[[H], H]:
    """Declare the handler below at all places.

    `{}` in the route, such as `POST {}/messages:claim`, is the route of the place; in the summary
    it is what the place is called. `command` says what a handler takes that does not say it itself.
    """

    def declare(handler: Any) -> Any:
        wanted = command or types_of(handler)[0]
        for place in places:
            operation(
                f"{place.noun}.{verb}", route.replace("{}", place.route), permission, *shared,
                options, {"scope": place.scope}, summary=summary.replace("{}", place.called),
                request=request_at(place, wanted),
            )(handler)  # fmt: skip
        return handler

    return declare


def request_at(place: Place, command: Any) -> Any:
    """Return the request of a place: the fields of its path and those of the command."""
    return _request(place.by, command)


@functools.cache
def _request(by: type[Struct], command: type[Struct]) -> type[Struct]:
    fields = [
        (one.name, one.type, msgspec.field(name=one.encode_name, **_default(one)))
        for one in msgspec.structs.fields(command)
    ]
    return msgspec.defstruct(
        f"{command.__name__.strip('_')}{by.__name__}", fields, bases=(by,), module=__name__,
        namespace={"__doc__": command.__doc__}, frozen=True, kw_only=True,
    )  # fmt: skip


def _default(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    if field.default_factory is not msgspec.NODEFAULT:
        return {"default_factory": field.default_factory}
    return {} if field.default is msgspec.NODEFAULT else {"default": field.default}


class Existing(Entity):
    """Keeps a handle from making its entity: a request never does, whatever role its key has."""

    async def ensure(self) -> None:
        """Refuse what is not there, or is of another kind."""
        self._require((await self._service.tools.definitions.of(str(self.path))).kind)

    async def _record(self) -> EntityRecord:
        record = await self._service.tools.entities.get(str(self.path))
        self._require(record.kind)
        return record

    def _require(self, kind: EntityKind) -> None:
        if kind != self.kind:
            raise NotFound(f"{str(self.path)!r} is a {kind}; there is no {self.kind} of that name")


class ExistingQueue(Existing, Queue):
    """A queue that has to be there."""


class ExistingTopic(Existing, Topic):
    """A topic that has to be there."""


class ExistingSubscription(Existing, Subscription):
    """A subscription that has to be there."""


def source_at(messaging: Messaging, path: Path) -> Source:
    """Return the handle of a queue, subscription or dead-letter queue that has to be there."""
    found: Queue | Subscription
    if path.subscription is None:
        found = ExistingQueue(messaging, path.entity, {})
    else:
        found = _subscription(messaging, path)
    match path.sub_queue:
        case None:
            return found
        case "dead_letters":
            return found.dead_letters
        case "transfer_dead_letters":
            return found.transfer_dead_letters


def _subscription(messaging: Messaging, path: Path) -> Subscription:
    topic = ExistingTopic(messaging, path.entity, {})
    return ExistingSubscription(topic, path.subscription or "", {}, None)


def subscription_of(services: Services, command: Addressed) -> Subscription:
    """Return the handle of the subscription that a command names."""
    return _subscription(services.app.messaging, command.address)


def source_of(services: Services, command: Addressed) -> Source:
    """Return the handle of what a command receives from."""
    return source_at(services.app.messaging, command.address)


def destination_of(services: Services, principal: Principal, command: Addressed) -> Destination:
    """Return the handle of what a command sends to, bound to the class that the key may use."""
    kind = ExistingTopic if command.kind == "topic" else ExistingQueue
    return kind(
        services.app.messaging, command.address.entity, {}, max_class=principal.max_class,
        inflation=principal.max_class_mode,
    )  # fmt: skip
