"""Queues, topics and subscriptions as users hold them: handles, made without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from relevo.messaging.core import names
from relevo.messaging.core.names import Path
from relevo.messaging.endpoints import Destination, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.messaging.model import (
        ConsumersOptions,
        CorrelationRule,
        SqlRule,
        SubscriptionOptions,
    )
    from relevo.messaging.service import Messaging, RegisteringConsumers


class Queue(Destination, Source):
    """A queue: messages wait in it until somebody has dealt with them.

    >>> render = app.queue("render", max_delivery_count=5)  # doctest: +SKIP
    >>> await render.send({"frame": 1}, priority=7)  # doctest: +SKIP
    """

    kind = "queue"


class Topic(Destination):
    """A topic: every subscription gets its own copy of the messages that its rules select."""

    kind = "topic"

    def subscription(
        self,
        name: str,
        *,
        rules: Mapping[str, str | SqlRule | CorrelationRule] | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> Subscription:
        """Return a subscription; `rules` are by name, a text is a SQL filter; none select all."""
        return Subscription(self, name, options, rules)


class Subscription(Source):
    """A subscription of a topic."""

    kind = "subscription"

    def __init__(
        self,
        topic: Topic,
        name: str,
        options: Mapping[str, Any],
        rules: Mapping[str, str | SqlRule | CorrelationRule] | None,
    ) -> None:
        path = Path(topic.path.entity, names.check(name, "subscription"))
        super().__init__(topic._service, path, options, rules)
        self.topic = topic

    async def ensure(self) -> None:
        """Make topic and subscription if they do not exist."""
        await self.topic.ensure()
        await super().ensure()

    async def set_rule(self, name: str, rule: str | SqlRule | CorrelationRule) -> None:
        """Add a rule, or replace it; messages that are accepted from now on follow it."""
        await self.ensure()
        await self._service.tools.entities.set_rule(str(self.path), name, rule)

    async def remove_rule(self, name: str) -> None:
        """Remove a rule."""
        await self._service.tools.entities.remove_rule(str(self.path), name)

    async def rules(self) -> dict[str, SqlRule | CorrelationRule]:
        """Return the rules by name."""
        await self.ensure()
        return await self._service.tools.entities.rules(str(self.path))


class PriorityTopic(Topic):
    """A topic with a subscription per class: each has consumers of its own.

    >>> orders = app.priority_topic("orders", {"high": 8, "low": 2})  # doctest: +SKIP
    >>> await orders.send(b"…", properties={"Priority": "high"})  # doctest: +SKIP
    """

    def __init__(self, service: Messaging, name: str, slots: Mapping[str, int]) -> None:
        super().__init__(service, name, {})
        self.slots = dict(slots)
        self._of_class = {
            of: self.subscription(of, rules={of: f"Priority = '{names.check(of, 'class')}'"})
            for of in self.slots
        }

    async def ensure(self) -> None:
        """Make topic and subscriptions in one transaction: no message is sent to too few."""
        tools = self._service.tools
        if self._made_on is not tools:
            every = (self, *self._of_class.values())
            await tools.entities.ensure_together([one._wanted() for one in every])
            self._made_on = tools

    def __getitem__(self, of: str) -> Subscription:
        return self._of_class[of]

    def on_messages(self, of: str, **options: Unpack[ConsumersOptions]) -> RegisteringConsumers:
        """Make a function the handler of the consumers of a class."""
        options.setdefault("concurrency", self.slots[of])
        return self._of_class[of].on_messages(f"{self.name}-{of}", **options)
