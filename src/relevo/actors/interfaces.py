"""Interfaces: what callers of an actor see, and how arguments and results travel.

    class Account(Interface):
        async def deposit(self, cents: int) -> int: ...

Bodies are MessagePack and never pickled. Values are checked against the annotations at both ends,
and always copied by encoding, so a caller and an actor share no object. An argument annotated with
an interface takes a proxy, which travels as the canonical id of its actor.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.actors.core.identity import ActorRef
from relevo.actors.core.signature_text import problem_of
from relevo.actors.implementations import check_implementation
from relevo.actors.markers import (
    MethodOptions,
    TimerMark,
    markers_of,
    method,
    options_of,
    reminder_handler,
    timer,
    upgrade,
)
from relevo.actors.signatures import MethodSpec, Parameter, read_signature
from relevo.errors import InvalidValue, RelevoError, UnknownMethod

__all__ = [
    "Interface",
    "InterfaceBase",
    "InterfaceSpec",
    "Interfaces",
    "MethodOptions",
    "MethodSpec",
    "Parameter",
    "TimerMark",
    "check_implementation",
    "markers_of",
    "method",
    "reminder_handler",
    "timer",
    "upgrade",
]

RESERVED: Final = frozenset({"call", "interface", "ref", "subscribe", "tell", "with_"})
"""Names that every proxy has, so that no method of an interface may have them."""

MakeProxy = Callable[[type, str], Any]
"""Returns the proxy of an interface for a canonical id."""


class InterfaceMeta(type):
    """Makes a proxy an instance of its interface."""

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        interface = getattr(instance, "interface", None)
        return isinstance(interface, type) and issubclass(interface, cls)


class InterfaceBase(metaclass=InterfaceMeta):
    """Base of interfaces: fully annotated `async def` methods without a body.

    An interface may extend others; for type checkers it then names `Interface` again:
    `class Savings(Account, Interface)`.
    """


if TYPE_CHECKING:
    from typing import Protocol as Interface  # lets type checkers accept methods without a body
else:
    Interface = InterfaceBase
    Interface.__name__ = Interface.__qualname__ = "Interface"


class InterfaceSpec(Struct, frozen=True):
    """The methods of an interface, inherited ones included."""

    interface: type
    methods: dict[str, MethodSpec]

    @property
    def name(self) -> str:
        """The name of the interface."""
        return self.interface.__name__

    def method(self, name: str) -> MethodSpec:
        """Return a method; raises `UnknownMethod`."""
        found = self.methods.get(name)
        if found is None:
            known = ", ".join(sorted(self.methods)) or "none"
            raise UnknownMethod(
                f"{self.name} has no method {name[:100]!r}; its methods: {known}", pointer="method"
            )
        return found


class Interfaces:
    """The interfaces of an app and the codec of all values of its actors.

    `make_proxy` makes the proxies that decoding finds. A proxy has the attributes `ref` and
    `interface`, and is then an instance of its interface. `is_own` says whether this app
    has made a proxy.
    """

    def __init__(
        self, make_proxy: MakeProxy, is_own: Callable[[Any], bool] = lambda _: True
    ) -> None:
        self._make_proxy = make_proxy
        self._is_own = is_own
        self._specs: dict[type, InterfaceSpec] = {}
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self.enc_hook)
        self._json = msgspec.json.Encoder(enc_hook=self.enc_hook)

    def of(self, interface: type) -> InterfaceSpec:
        """Return the methods of an interface; raises `InvalidValue` with all that is wrong."""
        found = self._specs.get(interface)
        if found is None:
            found = self._specs[interface] = self._read(interface)
        return found

    @property
    def encoder(self) -> msgspec.msgpack.Encoder:
        """Encodes any value that may hold proxies: arguments, results, state."""
        return self._encoder

    @property
    def json_encoder(self) -> msgspec.json.Encoder:
        """Encodes the same values as JSON."""
        return self._json

    def decoder(self, annotation: Any) -> msgspec.msgpack.Decoder[Any]:
        """Return a strict decoder for the values of an annotation."""
        return msgspec.msgpack.Decoder(annotation, dec_hook=self.dec_hook)

    def json_decoder(self, annotation: Any) -> msgspec.json.Decoder[Any]:
        """Return a strict decoder of JSON for the values of an annotation."""
        return msgspec.json.Decoder(annotation, dec_hook=self.dec_hook)

    def schema(self, interfaces: Iterable[type]) -> dict[str, Any]:
        """Return interfaces as JSON Schema: the arguments, by name, and the result of each method.

        Types that are used by several are in `components/schemas`.
        """
        specs = [self.of(interface) for interface in interfaces]
        kinds: list[Any] = []
        for spec in specs:
            for each in spec.methods.values():
                kinds += [each.arguments_type(), each.result]
        schemas, components = msgspec.json.schema_components(
            kinds, schema_hook=_schema_of, ref_template="#/components/schemas/{name}"
        )
        made = iter(schemas)
        return {
            "interfaces": {
                spec.name: {
                    name: {"arguments": next(made), "result": next(made), "digest": each.digest}
                    for name, each in spec.methods.items()
                }
                for spec in specs
            },
            "components": {"schemas": components},
        }

    def enc_hook(self, value: Any) -> Any:
        """Return a proxy as the canonical id of its actor."""
        ref = getattr(value, "ref", None)
        if isinstance(ref, ActorRef):
            if not self._is_own(value):
                raise ValueError(
                    f"the proxy of {ref} cannot travel: another app has made it, where the id may"
                    " mean another actor; make one with this app"
                )
            return ref.canonical
        raise TypeError(f"values of {type(value).__name__} cannot travel")

    def dec_hook(self, kind: type, value: Any) -> Any:
        """Return the proxy of a canonical id."""
        if not isinstance(kind, InterfaceMeta):
            raise TypeError(f"values of {kind.__name__} cannot travel")
        if not isinstance(value, str):
            raise ValueError(f"Expected the canonical id of an actor, got {value!r:.100}")
        try:
            ActorRef.read(value)
            return self._make_proxy(kind, value)
        except RelevoError as error:
            raise ValueError(error.message) from error

    def _read(self, interface: type) -> InterfaceSpec:
        if not isinstance(interface, InterfaceMeta) or interface is InterfaceBase:
            raise InvalidValue(
                f"{getattr(interface, '__name__', interface)!r} is no interface;"
                " derive a class from relevo.actors.Interface"
            )
        faults: list[str] = []
        methods: dict[str, MethodSpec] = {}
        for name, function in methods_of(interface):
            try:
                methods[name] = self._method(interface, name, function)
            except InvalidValue as error:
                faults.append(error.message)
        if faults:
            raise InvalidValue(
                f"the interface {interface.__name__} cannot be used: {'; '.join(faults)}"
            )
        return InterfaceSpec(interface, methods)

    def _method(self, interface: type, name: str, function: Any) -> MethodSpec:
        if name in RESERVED:
            raise InvalidValue(f"{name}: every proxy has this name; rename the method")
        if not isinstance(function, types.FunctionType) or not inspect.iscoroutinefunction(
            function
        ):
            raise InvalidValue(f"{name}: a method of an interface is an `async def` function")
        parameters, result = read_signature(function)
        for where, annotation in [
            *((one.name, one.annotation) for one in parameters),
            ("the result", result),
        ]:
            problem = problem_of(annotation)
            if problem:
                raise InvalidValue(f"{name}: {where} cannot travel: {problem}")
        return MethodSpec(
            self,
            interface.__name__,
            name,
            parameters,
            result,
            options_of(function) or MethodOptions(),
        )


def _schema_of(kind: type) -> dict[str, Any]:
    if isinstance(kind, InterfaceMeta):
        return {"type": "string", "description": f"canonical id of an actor: {kind.__name__}"}
    raise NotImplementedError


def methods_of(interface: type) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes of an interface and of those that it extends."""
    seen = set()
    for base in interface.__mro__:
        if not isinstance(base, InterfaceMeta) or base is InterfaceBase:
            continue
        for name, value in vars(base).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value
