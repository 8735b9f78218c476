"""The subscriptions to the actors of a host."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from relevo.actors.calls.answers import answer_of_error
from relevo.actors.core.calls import Answer, MovedTo, Returned
from relevo.actors.core.identity import slot_of
from relevo.actors.events import SubscribeRequest
from relevo.errors import BadArguments, RelevoError
from relevo.limits import ACTOR_SUBSCRIPTION_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from relevo.actors.running.runtime import ActorRuntime

_requests = msgspec.msgpack.Decoder(SubscribeRequest)
_ADMITTED = Returned(b"\xc0")


class _Subscription:
    def __init__(
        self, request: SubscribeRequest, slot: tuple[str, int],
        put: Callable[[int, bytes], None], end: Callable[[], None],
    ) -> None:  # fmt: skip
        self.actor = request.actor
        self.events = frozenset(request.events)
        self.slot = slot
        self.put = put
        self.end = end
        self.sequence = 0
        self.until = 0.0


class Emitter:
    """Gives events to their subscribers; it waits for none of them.

    A subscription belongs to the actor, not to its activation, and ends unless it is renewed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_key: dict[Hashable, _Subscription] = {}
        self._by_actor: dict[str, dict[Hashable, _Subscription]] = {}

    def subscribe(
        self, key: Hashable, request: SubscribeRequest, slot: tuple[str, int],
        put: Callable[[int, bytes], None], end: Callable[[], None],
    ) -> None:  # fmt: skip
        """Begin a subscription, or renew it; `end` is called when the slot leaves this host."""
        subscription = self._by_key.get(key)
        if subscription is None:
            subscription = _Subscription(request, slot, put, end)
            self._by_key[key] = subscription
            self._by_actor.setdefault(request.actor, {})[key] = subscription
        subscription.until = self._loop.time() + ACTOR_SUBSCRIPTION_SECONDS

    def unsubscribe(self, key: Hashable) -> None:
        """End a subscription."""
        subscription = self._by_key.pop(key, None)
        if subscription is not None:
            others = self._by_actor[subscription.actor]
            del others[key]
            if not others:
                del self._by_actor[subscription.actor]

    def publish(self, actor: str, event: str, body: bytes) -> None:
        """Give an event to all who asked for it."""
        for key, subscription in list(self._by_actor.get(actor, {}).items()):
            if subscription.until < self._loop.time():
                self.unsubscribe(key)
            elif event in subscription.events:
                subscription.sequence += 1
                subscription.put(subscription.sequence, body)

    def forget(self, which: Callable[[Hashable], bool]) -> None:
        """End the subscriptions of a peer that is gone."""
        for key in [key for key in self._by_key if which(key)]:
            self.unsubscribe(key)

    def end_slot(self, slot: tuple[str, int]) -> None:
        """End the subscriptions to actors of a slot that has left."""
        for key, subscription in list(self._by_key.items()):
            if subscription.slot == slot:
                self.unsubscribe(key)
                subscription.end()


def subscribe(
    runtime: ActorRuntime, key: Hashable, body: bytes, put: Callable[[int, bytes], None],
    end: Callable[[], None],
) -> Answer:  # fmt: skip
    """Begin or renew a subscription to events of an actor, if its slot is here."""
    try:
        request = _requests.decode(body)
        definition = runtime.definition_of(request.actor)
    except (msgspec.MsgspecError, RelevoError) as error:
        return answer_of_error(BadArguments(str(error)), None)
    if definition.is_stateless:
        text = f"{definition.name!r} is stateless, and its activations have no subscribers"
        return answer_of_error(BadArguments(text), None)
    group = definition.options.placement_group
    number = slot_of(request.actor, runtime.slots_of(group))
    slot = runtime.slots.get((group, number))
    if slot is None or not slot.is_open:
        return MovedTo(0 if slot is None else slot.lease.epoch)
    runtime.emitter.subscribe(key, request, (group, number), put, end)
    return _ADMITTED
