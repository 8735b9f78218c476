"""`app.messaging`: queues, topics and subscriptions, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from relevo.errors import InvalidValue
from relevo.kernel import callables, checking
from relevo.kernel.part import PerConnection, Service
from relevo.messaging.definitions import Definitions
from relevo.messaging.endpoints import Source, received
from relevo.messaging.entities import Entities, EntityRecord
from relevo.messaging.handles import PriorityTopic, Queue, Topic
from relevo.messaging.model import (
    ConsumersOptions,
)
from relevo.messaging.operating import consumers
from relevo.messaging.operating.scaling import Scaler
from relevo.messaging.receiving import Receiving
from relevo.messaging.registry import ConsumersRegistry, defined
from relevo.messaging.sending import Sending
from relevo.messaging.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from relevo.kernel.part import Connection
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.messaging.model import (
        QueueOptions,
        ReceiveMode,
        TopicOptions,
    )
    from relevo.messaging.operating.consumers import ConsumersView
    from relevo.messaging.running.context import Received
    from relevo.settings import Settings


H = TypeVar("H", bound=Callable[..., Any])


class RegisteringConsumers(Protocol):
    """Makes the function below it the handler of consumers."""

    def __call__(self, function: H) -> H:
        """Return the function as it is."""


class MessagingTools:
    """Carries out the calls of `Messaging` on one connection."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self.entities = Entities(database)
        self.definitions = Definitions(database)
        self.sending = Sending(database, wakeups, self.definitions)
        self.receiving = Receiving(database, wakeups)
        self.sessions = Sessions(database, wakeups, self.receiving)
        self.scaler = Scaler(database)

    async def close(self) -> None:
        """Finish accepted calls."""
        await self.sending.close()
        await self.receiving.close()


class Messaging(Service):
    """The messaging part of an app.

    >>> await app.queue("render").send(b"frame 1", priority=7)  # doctest: +SKIP
    >>> [message] = await app.queue("render").receive(wait=5)  # doctest: +SKIP
    >>> await message.complete()  # doctest: +SKIP
    """

    def __init__(self, connection: Connection, settings: Settings) -> None:
        super().__init__(connection)
        self.schema = settings.schema
        self.registry = ConsumersRegistry()
        self.sources: dict[str, Source] = {}
        """The handles of what consumers serve, by key: a host makes what is missing."""
        self._tools = PerConnection(connection, MessagingTools)

    @property
    def tools(self) -> MessagingTools:
        """What carries out calls; raises `Conflict` before the app is connected."""
        return self._tools()

    def queue(
        self, name: str, *, max_class: str | None = None, **options: Unpack[QueueOptions]
    ) -> Queue:
        """Return a queue; no I/O, so modules may call it on import. It is made when first used.

        Options that are given must agree with the queue if it exists: `update` changes it.
        """
        return Queue(self, name, options, max_class=max_class)

    def topic(
        self, name: str, *, max_class: str | None = None, **options: Unpack[TopicOptions]
    ) -> Topic:
        """Return a topic, as `queue`; `topic.subscription(…)` returns its subscriptions."""
        return Topic(self, name, options, max_class=max_class)

    def priority_topic(self, name: str, slots: Mapping[str, int]) -> PriorityTopic:
        """Return a topic with a subscription per class, each served by so many slots."""
        return PriorityTopic(self, name, slots)

    async def receive(
        self,
        sources: Sequence[Source],
        max_messages: int = 1,
        *,
        wait: float | None = None,
        mode: ReceiveMode = "peek_lock",
    ) -> list[Received]:
        """Receive from several sources with one statement; the first with messages goes first."""
        for source in sources:
            await source.ensure()
        return await received(self, [one.path for one in sources], max_messages, wait, mode)

    async def queues(self, *, after: str = "", limit: int = 100) -> list[EntityRecord]:
        """Return queues by name, a page at a time."""
        return await self.tools.entities.list("queue", after=after, limit=limit)

    async def topics(self, *, after: str = "", limit: int = 100) -> list[EntityRecord]:
        """Return topics by name, a page at a time."""
        return await self.tools.entities.list("topic", after=after, limit=limit)

    async def consumers(self, *, after: str = "", limit: int = 100) -> list[ConsumersView]:
        """Return consumers by name with the hosts that serve them, a page at a time.

        Consumers are known once a host has served them.
        """
        return await consumers.listed(self.database, after=after, limit=limit)

    async def pause_consumers(
        self, name: str, *, reason: str | None = None, until: datetime | None = None
    ) -> None:
        """Let consumers claim nothing until they are resumed, or until an instant.

        Messages stay, and handlers finish what they have begun.
        """
        await consumers.pause(self.database, name, reason=reason, until=until)

    async def resume_consumers(self, name: str) -> None:
        """Let paused consumers go on."""
        await consumers.resume(self.database, self.wakeups, name)

    def register_consumers(
        self, name: str, *, sources: Sequence[Source], **options: Unpack[ConsumersOptions]
    ) -> RegisteringConsumers:
        """Make a function the handler of messages from these sources; `app.consumers` explains."""
        callables.check_name(name, "app.consumers" if len(sources) > 1 else "queue.on_messages")

        checking.options(f"consumers {name!r}", options, ConsumersOptions.__annotations__)
        for one in sources:
            if not isinstance(one, Source):
                raise InvalidValue(
                    f"sources of consumers {name!r} are queues and subscriptions, such as"
                    f" app.queue({str(one)!r}), not {one!r}",
                    pointer="sources",
                )

        def register(function: H) -> H:
            paths = [str(one.path) for one in sources]
            self.registry.add(defined(name, paths, function, **options))
            self.sources.update((one.path.key, one) for one in sources)
            return function

        return register
