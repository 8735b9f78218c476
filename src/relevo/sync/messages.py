"""Queues, topics, subscriptions and messages, for callers that block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from relevo import messaging
from relevo.sync.facade import Blocking, Facade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.messaging.endpoints import Source as AsyncSource
    from relevo.messaging.model import (
        CorrelationRule,
        ReceiveMode,
        SqlRule,
        SubscriptionOptions,
    )


class Received(Facade):
    """A message, held under a lock until it is settled."""

    _behind: messaging.Received

    @property
    def message(self) -> messaging.Received:
        """The message with all its properties."""
        return self._behind

    @property
    def body(self) -> Any:
        """The body as it was sent: bytes, text, or the value of a JSON text."""
        return self._behind.body

    @property
    def properties(self) -> Mapping[str, Any]:
        """The application properties that the sender set."""
        return self._behind.properties

    complete = Blocking(messaging.Received.complete)
    abandon = Blocking(messaging.Received.abandon)
    defer = Blocking(messaging.Received.defer)
    dead_letter = Blocking(messaging.Received.dead_letter)
    release = Blocking(messaging.Received.release)
    renew = Blocking(messaging.Received.renew)


class _Entity(Facade):
    ensure = Blocking(messaging.Queue.ensure)
    describe = Blocking(messaging.Queue.describe)
    drop = Blocking(messaging.Queue.drop)


class _Destination(_Entity):
    send = Blocking(messaging.Queue.send)
    send_many = Blocking(messaging.Queue.send_many)
    schedule = Blocking(messaging.Queue.schedule)
    cancel_scheduled = Blocking(messaging.Queue.cancel_scheduled)


class _Source(_Entity):
    _behind: AsyncSource
    peek = Blocking(messaging.Queue.peek)

    def receive(
        self, max_messages: int = 1, *, wait: float | None = None, mode: ReceiveMode = "peek_lock"
    ) -> list[Received]:
        """Return 1 to `max_messages` as soon as there is one; an empty list after `wait` seconds.

        Each is locked until it is settled, or `lock_duration` is over. With
        `mode="receive_and_delete"` they are gone at once: delivered at most once.
        """
        found = self._thread.run(self._behind.receive(max_messages, wait=wait, mode=mode))
        return [Received(self._thread, one) for one in found]


class Queue(_Destination, _Source):
    """A queue: `relevo.Queue` without `await`."""

    _behind: messaging.Queue


class Topic(_Destination):
    """A topic: `relevo.Topic` without `await`."""

    _behind: messaging.Topic

    def subscription(
        self,
        name: str,
        *,
        rules: Mapping[str, str | SqlRule | CorrelationRule] | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> Subscription:
        """Return a subscription; `rules` are by name, a text is a SQL filter; none select all."""
        return Subscription(self._thread, self._behind.subscription(name, rules=rules, **options))


class Subscription(_Source):
    """A subscription of a topic: `relevo.Subscription` without `await`."""

    _behind: messaging.Subscription
