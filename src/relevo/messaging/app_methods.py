"""`app.queue`, `app.topic`, `app.consumers` and others: the messaging's methods of `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.messaging.endpoints import Source
    from relevo.messaging.handles import PriorityTopic, Queue, Topic
    from relevo.messaging.model import ConsumersOptions, QueueOptions, ReceiveMode, TopicOptions
    from relevo.messaging.running.context import Received
    from relevo.messaging.service import Messaging, RegisteringConsumers


class MessagingMethods:
    """Returns queues and topics, receives from several, and makes functions consumers."""

    messaging: Messaging

    def queue(
        self, name: str, *, max_class: str | None = None, **options: Unpack[QueueOptions]
    ) -> Queue:
        """Return a queue; no I/O, so modules may call it on import. It is made when first used.

        `max_class` is the highest class that this handle sends with.
        """
        return self.messaging.queue(name, max_class=max_class, **options)

    def topic(
        self, name: str, *, max_class: str | None = None, **options: Unpack[TopicOptions]
    ) -> Topic:
        """Return a topic, as `queue`; `topic.subscription(…)` returns its subscriptions."""
        return self.messaging.topic(name, max_class=max_class, **options)

    def priority_topic(self, name: str, slots: Mapping[str, int]) -> PriorityTopic:
        """Return a topic with a subscription for each class, and so many slots for its consumers.

        Messages are told apart by their property `Priority`.
        """
        return self.messaging.priority_topic(name, slots)

    async def receive(
        self,
        sources: Sequence[Source],
        max_messages: int = 1,
        *,
        wait: float | None = None,
        mode: ReceiveMode = "peek_lock",
    ) -> list[Received]:
        """Receive from several queues and subscriptions at once, as `queue.receive`.

        The first source with messages goes first, and one look at many costs no more than at one.
        """
        return await self.messaging.receive(sources, max_messages, wait=wait, mode=mode)

    def consumers(
        self, name: str, *, sources: Sequence[Source], **options: Unpack[ConsumersOptions]
    ) -> RegisteringConsumers:
        """Make a function the handler of messages from one or several sources.

        It gets a `Received`: when it returns the message is complete, when it raises the message
        is abandoned. Coroutines run in the event loop, plain functions in threads, and with
        `process=True` in a process of their own.
        """
        return self.messaging.register_consumers(name, sources=sources, **options)
