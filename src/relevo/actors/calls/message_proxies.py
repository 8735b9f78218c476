"""Durable sends: a message to an actor is a row of the receiver, stored with the sender's turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from relevo.actors.core.deltas import OnDead, OutgoingMessage
from relevo.errors import InvalidValue
from relevo.limits import ACTOR_SEND_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from relevo.actors.calls.proxies import ProxyBase
    from relevo.actors.signatures import MethodSpec


class SendOptions(Struct, frozen=True, kw_only=True):
    """How a message is tried."""

    attempts: int = ACTOR_SEND_ATTEMPTS
    on_dead: OnDead = "continue"
    """Whether later messages of the same sender and receiver go on after one that failed."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidValue("attempts is at least 1", pointer="attempts")
        if self.on_dead not in ("continue", "block"):
            raise InvalidValue("on_dead is continue or block", pointer="on_dead")


class Place(Protocol):
    """Says where an actor is placed."""

    def __call__(self, canonical: str, type_name: str) -> tuple[str, int]:
        """Return the placement group and the slot of an actor; raises `NotFound`."""


class Noted:
    """The result of a send within a turn: it has happened, and may be awaited or not."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class MessageProxy:
    """Looks like the proxy that it was made of; each call makes a message."""

    def __init__(
        self,
        proxy: ProxyBase,
        place: Place,
        options: SendOptions,
        send: Callable[[OutgoingMessage], Awaitable[None]],
        sender: str = "",
    ) -> None:
        self._proxy = proxy
        self._place = place
        self._options = options
        self._send = send
        self._sender = sender

    def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
        method = self._proxy._spec.method(name)

        def send(*args: Any, **kwargs: Any) -> Awaitable[None]:
            return self._send(self._message(method, args, kwargs))

        return send

    def _message(
        self, method: MethodSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> OutgoingMessage:
        ref = self._proxy.ref
        canonical = ref.canonical
        group, slot = self._place(canonical, ref.type)
        return OutgoingMessage(
            canonical, group, slot, method.name, method.encode_arguments(args, kwargs),
            digest=method.digest, headers=dict(self._proxy._options.headers), sender=self._sender,
            attempts=self._options.attempts, on_dead=self._options.on_dead,
        )  # fmt: skip
