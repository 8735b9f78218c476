"""Proxies: what callers hold of an actor. Making one does no I/O and activates nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.limits import ACTOR_CALL_ID_LENGTH_MAX, ACTOR_CALL_SECONDS, ACTOR_HEADERS_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from relevo.actors.calls.subscriptions import EventStream
    from relevo.actors.core.identity import ActorRef
    from relevo.actors.events import Events
    from relevo.actors.interfaces import InterfaceSpec
    from relevo.actors.signatures import MethodSpec


class CallOptions(Struct, frozen=True):
    """How the calls of a proxy are made."""

    timeout: float = ACTOR_CALL_SECONDS
    call_id: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    one_way: bool = False


class Caller(Protocol):
    """Carries out the calls of proxies."""

    def call(
        self, ref: ActorRef, method: MethodSpec, body: bytes, options: CallOptions
    ) -> Coroutine[Any, Any, Any]:
        """Return what the method returns."""

    def subscribe(self, ref: ActorRef, events: type[Events]) -> EventStream:
        """Return the events of an actor, as an async context manager."""


class ProxyBase:
    """An actor as its callers see it: immutable, hashable, equal by id."""

    __slots__ = ("_caller", "_options", "_ref", "_spec")
    _caller: Caller
    _options: CallOptions
    _ref: ActorRef
    _spec: InterfaceSpec

    @property
    def interface(self) -> type:
        """The interface whose methods it has."""
        return self._spec.interface

    @property
    def ref(self) -> ActorRef:
        """Who it stands for."""
        return self._ref

    @property
    def tell(self) -> Any:
        """The same actor; calls wait for admission to its mailbox only, and have no answer."""
        return self._with(CallOptions(
            self._options.timeout, self._options.call_id, self._options.headers, one_way=True
        ))  # fmt: skip

    def with_(
        self,
        *,
        timeout: float | None = None,
        call_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return a copy with another time limit in seconds, call id or further headers."""
        options = self._options
        if timeout is not None and not 0 < timeout <= 86_400:
            raise InvalidValue(f"timeout is {timeout!r}; give seconds above 0", pointer="timeout")
        if call_id is not None and not 1 <= len(call_id) <= ACTOR_CALL_ID_LENGTH_MAX:
            raise InvalidValue(
                f"a call id has 1 to {ACTOR_CALL_ID_LENGTH_MAX} characters", pointer="call_id"
            )
        merged = dict(options.headers) | checked_headers(headers or {})
        return self._with(CallOptions(
            options.timeout if timeout is None else timeout,
            options.call_id if call_id is None else call_id,
            tuple(checked_headers(merged).items()),
            options.one_way,
        ))  # fmt: skip

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method by its name."""
        method = self._spec.method(name)
        body = method.encode_arguments(args, kwargs)
        return await self._caller.call(self._ref, method, body, self._options)

    def subscribe(self, events: type[Events]) -> EventStream:
        """Return the events of the actor: `async with proxy.subscribe(Scores) as stream`."""
        return self._caller.subscribe(self._ref, events)

    def _with(self, options: CallOptions) -> Any:
        return _made(type(self), self._caller, self._spec, self._ref, options)

    def __setattr__(self, name: str, _: Any) -> None:
        raise AttributeError(f"a proxy is immutable; {name!r} cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProxyBase) and other._ref == self._ref

    def __lt__(self, other: ProxyBase) -> bool:
        return self._ref.canonical < other._ref.canonical

    def __hash__(self) -> int:
        return hash(self._ref)

    def __repr__(self) -> str:
        return f"{self._spec.name}({self._ref.canonical})"


class Proxies:
    """Makes proxies; one class for each interface."""

    def __init__(self, caller: Caller, spec_of: Callable[[type], InterfaceSpec]) -> None:
        self._caller = caller
        self._spec_of = spec_of
        self._classes: dict[type, type[ProxyBase]] = {}

    def make(self, interface: type, ref: ActorRef) -> Any:
        """Return a proxy of an actor."""
        spec = self._spec_of(interface)
        cls = self._classes.get(interface)
        if cls is None:
            cls = self._classes[interface] = _proxy_class(interface, spec)
        return _made(cls, self._caller, spec, ref, CallOptions())


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers of a call; raises `InvalidValue`."""
    texts: list[object] = [*headers, *headers.values()]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidValue("headers of a call are text to text", pointer="headers")
    size = sum(len(k.encode()) + len(v.encode()) for k, v in headers.items())
    if size > ACTOR_HEADERS_BYTES_MAX:
        raise InvalidValue(
            f"the headers have {size} bytes; at most {ACTOR_HEADERS_BYTES_MAX} go with a call",
            pointer="headers",
        )
    return dict(headers)


def _proxy_class(interface: type, spec: InterfaceSpec) -> type[ProxyBase]:
    members: dict[str, Any] = {"__slots__": ()}
    for name, method in spec.methods.items():
        members[name] = _method(method, getattr(interface, name))
    return type(f"{interface.__name__}Proxy", (ProxyBase, interface), members)


def _method(method: MethodSpec, declared: Any) -> Any:
    async def call(self: ProxyBase, *args: Any, **kwargs: Any) -> Any:
        body = method.encode_arguments(args, kwargs)
        return await self._caller.call(self._ref, method, body, self._options)

    call.__name__, call.__doc__ = method.name, declared.__doc__
    call.__qualname__ = declared.__qualname__
    return call


def _made(
    cls: type[ProxyBase], caller: Caller, spec: InterfaceSpec, ref: ActorRef, options: CallOptions
) -> Any:
    proxy = cls.__new__(cls)
    for name, value in (
        ("_caller", caller), ("_spec", spec), ("_ref", ref), ("_options", options),
    ):  # fmt: skip
        object.__setattr__(proxy, name, value)
    return proxy
