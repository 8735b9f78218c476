"""One method of an interface: its signature, and the codec of its arguments and results."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.actors.calls.declared_errors import decode_error, encode_error
from relevo.actors.core.signature_text import digest, type_text
from relevo.errors import ActorError, BadArguments, InvalidValue

if TYPE_CHECKING:
    from relevo.actors.core.mailbox import Mode
    from relevo.actors.interfaces import Interfaces
    from relevo.actors.markers import MethodOptions

EMPTY: Final = inspect.Parameter.empty
_PLAIN: Final = frozenset({int, str, float, bool, bytes, type(None)})
"""Types of which a value of exactly that class needs no further check."""
_COLLECTIONS: Final = (list, tuple, set, frozenset)
_BUFFERS: Final = (bytes, bytearray, memoryview)
_INDEX: Final = re.compile(
    r"^(?P<what>.*?)(?: - at `\$(?:\[(?P<index>\d+)\])?(?P<rest>.*)`)?$", re.S
)
_FAULTS: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class Parameter(Struct, frozen=True):
    """A parameter of a method; `default` is `EMPTY` if there is none."""

    name: str
    annotation: Any
    default: Any = EMPTY
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD

    @property
    def keyword_only(self) -> bool:
        """Whether it is passed by name only."""
        return bool(self.kind is inspect.Parameter.KEYWORD_ONLY)


class MethodSpec:
    """The signature of a method, and the codec of its arguments and results."""

    is_json: Final = False

    def __init__(
        self,
        codec: Interfaces,
        interface: str,
        name: str,
        parameters: tuple[Parameter, ...],
        result: Any,
        options: MethodOptions,
    ) -> None:
        self.interface = interface
        self.name = name
        self.parameters = parameters
        self.result = result
        self.options = options
        self.read_only = options.read_only
        self.interleave = options.interleave
        self.idempotent = options.idempotent
        self.confirm = options.confirm
        self.cancel = options.cancel
        self.mode: Mode = (
            "interleave" if options.interleave else "read" if options.read_only else "write"
        )
        self.work_name = f"method {name}"
        """How its turns are named."""
        self.digest = digest([(one.name, one.annotation) for one in parameters], result)
        """A short hash of the names and types of the signature."""
        self._codec = codec
        self._encode = codec.encoder.encode
        self._names = tuple(one.name for one in parameters)
        self._positional = sum(not one.keyword_only for one in parameters)
        self.is_positional = self._positional == len(parameters)
        """Whether all arguments can be passed by position."""
        kinds = tuple(one.annotation for one in parameters)
        self._exact = kinds if all(map(_is_plain, kinds)) else None
        self._decode = codec.decoder(self._record(by_name=False)).decode
        self._result = codec.decoder(result)
        self._result_exact = result if _is_plain(result) else None

    def __repr__(self) -> str:
        return f"<{self.title}>"

    @property
    def title(self) -> str:
        """The method as errors name it."""
        return f"{self.interface}.{self.name}"

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in the order of the signature; raises `BadArguments`."""
        if len(args) > self._positional:
            raise self._bad(f"takes {self._positional} positional arguments, not {len(args)}")
        given = dict(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._names:
                raise self._bad(f"takes no argument {name[:100]!r}", name[:100])
            if name in given:
                raise self._bad(f"was given the argument {name!r} twice", name)
            given[name] = value
        for one in self.parameters:
            if one.name not in given:
                if one.default is EMPTY:
                    raise self._bad(f"misses the argument {one.name!r}", one.name)
                given[one.name] = one.default
        return tuple(given[name] for name in self._names)

    def encode_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Return the body of a call, checked; raises `BadArguments`."""
        if kwargs or len(args) != len(self._names) or not self.is_positional:
            args = self.bind(args, kwargs)
        values = tuple(args)
        try:
            body = self._encode(values)
            if self._exact is not None and tuple(map(type, values)) == self._exact:
                return body
            decoded = msgspec.structs.astuple(self._decode(body))
        except _FAULTS as error:
            raise self._misfit(values) from error
        for value, copy, one in zip(values, decoded, self.parameters, strict=True):
            if not _same_kind(value, copy, one.annotation):
                raise self._misfit_of(one, value)
        return body

    def decode_arguments(self, body: bytes) -> tuple[Any, ...]:
        """Return fresh arguments in the order of the signature; raises `BadArguments`.

        Missing trailing arguments get their defaults, so callers with older code are served.
        """
        try:
            return msgspec.structs.astuple(self._decode(body))
        except _FAULTS as error:
            raise self._undecodable(body, str(error)) from error

    def decode_named(self, body: bytes) -> tuple[Any, ...]:
        """Return the arguments of a JSON object of them by name; raises `BadArguments`."""
        try:
            return msgspec.structs.astuple(self._json_decoder.decode(body or b"{}"))
        except _FAULTS as error:
            raise self._bad(f"does not take these arguments: {error}") from error

    def encode_result(self, value: Any) -> bytes:
        """Return the body of an answer; raises `ActorError` if the annotation does not hold."""
        try:
            body = self._encode(value)
            if type(value) is self._result_exact or (value is None is self._result_exact):
                return body
            if _same_kind(value, self._result.decode(body), self.result):
                return body
        except _FAULTS as error:
            raise self._bad_result(value) from error
        raise self._bad_result(value)

    def decode_result(self, body: bytes) -> Any:
        """Return the result of a call; raises `ActorError` if it is none of the annotation."""
        try:
            return self._result.decode(body)
        except _FAULTS as error:
            raise ActorError(
                f"{self.title} ran, and its result is not {type_text(self.result)}:"
                f" {error}; the actor runs other code than the caller"
            ) from error

    def with_options(self, options: MethodOptions) -> MethodSpec:
        """Return the same signature with other options."""
        return MethodSpec(
            self._codec, self.interface, self.name, self.parameters, self.result, options
        )

    def encode_error(self, error: BaseException) -> bytes | None:
        """Return the body of a declared error, or None for any other."""
        kind = self.options.declared_for(error)
        return None if kind is None else encode_error(self._codec, kind, error)

    def decode_error(self, name: str, body: bytes, message: str) -> Exception | None:
        """Return a declared error as the method raised it; None if it is not declared here."""
        kind = self.options.declared(name)
        return None if kind is None else decode_error(self._codec, kind, body, message)

    def result_as_json(self, value: Any) -> bytes:
        """Return a result as JSON."""
        return self._codec.json_encoder.encode(value)

    def call(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        """Call a method of an actor with decoded arguments."""
        if self._positional == len(values):
            return function(*values)
        named = dict(zip(self._names[self._positional :], values[self._positional :], strict=True))
        return function(*values[: self._positional], **named)

    def arguments_type(self) -> type[Struct]:
        """Return a struct of the arguments by name, for JSON and its schema."""
        return self._record(by_name=True)

    @functools.cached_property
    def _json_decoder(self) -> msgspec.json.Decoder[Any]:
        return self._codec.json_decoder(self.arguments_type())

    def _record(self, *, by_name: bool) -> type[Struct]:
        """A struct of the arguments; only a trailing run of defaults may be missing in an array."""
        fields: list[Any] = []
        open_end = True
        for one in reversed(self.parameters):
            open_end = open_end and one.default is not EMPTY
            if one.default is EMPTY or not (open_end or by_name):
                fields.insert(0, (one.name, one.annotation))
            else:
                fields.insert(0, (one.name, one.annotation, self._default(one)))
        return msgspec.defstruct(
            f"{self.interface}_{self.name}",
            fields,
            array_like=not by_name,
            kw_only=by_name,
            forbid_unknown_fields=True,
            gc=False,
        )

    def _default(self, one: Parameter) -> Any:
        """A default as a field of a struct has it: fresh for each call, if it can be changed."""
        decoder = self._codec.decoder(one.annotation)
        try:
            body = self._encode(one.default)
            fits = _same_kind(one.default, decoder.decode(body), one.annotation)
        except _FAULTS:
            fits = False
        if not fits:
            raise InvalidValue(
                f"{self.name}: the default {one.default!r} of {one.name!r} is not"
                f" {type_text(one.annotation)}"
            )
        if type(one.default) in _PLAIN:
            return one.default
        return msgspec.field(default_factory=functools.partial(decoder.decode, body))

    def _misfit(self, values: tuple[Any, ...]) -> BadArguments:
        for one, value in zip(self.parameters, values, strict=True):
            try:
                decoded = self._codec.decoder(one.annotation).decode(self._encode(value))
            except _FAULTS as error:
                return self._misfit_of(one, value, str(error))
            if not _same_kind(value, decoded, one.annotation):
                return self._misfit_of(one, value)
        return self._bad("was given arguments that cannot be encoded")

    def _misfit_of(self, one: Parameter, value: Any, fault: str = "") -> BadArguments:
        where = f" ({fault})" if " - at `$" in fault or "travel" in fault else ""
        return self._bad(
            f"expects {type_text(one.annotation)} as {one.name!r}, not {_shown(value)}{where}",
            one.name,
        )

    def _undecodable(self, body: bytes, fault: str) -> BadArguments:
        match = _INDEX.match(fault)
        index = match["index"] if match else None
        if index is not None and int(index) < len(self.parameters):
            one = self.parameters[int(index)]
            try:
                value = msgspec.msgpack.decode(body)[int(index)]
            except (*_FAULTS, LookupError):
                return self._bad(f"cannot read the argument {one.name!r}: {fault}", one.name)
            return self._misfit_of(one, value, fault if match and match["rest"] else "")
        return self._bad(f"takes ({', '.join(self._names)}): {fault}")

    def _bad(self, what: str, parameter: str | None = None) -> BadArguments:
        return BadArguments(f"{self.title} {what}", pointer=parameter)

    def _bad_result(self, value: Any) -> ActorError:
        return ActorError(
            f"{self.title} returned {_shown(value)}, not {type_text(self.result)};"
            " correct the method or the annotation of its result",
            executed=True,
        )


def read_signature(function: Any, *, partly: bool = False) -> tuple[tuple[Parameter, ...], Any]:
    """Return the parameters without `self`, and the annotation of the result.

    Raises `InvalidValue` if an annotation is missing (unless `partly`) or unknown.
    """
    name = function.__name__
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidValue(
            f"{name}: an annotation cannot be resolved: {error}; define its type at the level of"
            " the module, and import it outside `if TYPE_CHECKING`"
        ) from error
    missing = Any if partly else inspect.Parameter.empty
    parameters = []
    for one in list(inspect.signature(function).parameters.values())[1:]:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and not partly:
            raise InvalidValue(f"{name}: a method takes no {one}; name each parameter")
        annotation = hints.get(one.name, missing)
        if annotation is inspect.Parameter.empty:
            raise InvalidValue(f"{name}: the parameter {one.name!r} has no annotation")
        parameters.append(Parameter(one.name, annotation, one.default, one.kind))
    if "return" not in hints and not partly:
        raise InvalidValue(f"{name}: the result has no annotation; write `-> None` if it has none")
    return tuple(parameters), hints.get("return", Any)


def _is_plain(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation in _PLAIN


def _same_kind(given: Any, decoded: Any, annotation: Any) -> bool:
    """Whether a value came back as what it is, and not as something that only looks like it."""
    if annotation is Any or annotation is object or isinstance(given, type(decoded)):
        return True
    if isinstance(decoded, float):
        return isinstance(given, int)
    if isinstance(decoded, _COLLECTIONS):
        return isinstance(given, _COLLECTIONS)
    if isinstance(decoded, dict):
        return isinstance(given, Mapping)
    return isinstance(decoded, _BUFFERS) and isinstance(given, _BUFFERS)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "…"
    short = text if len(text) <= 100 else f"{text[:100]}…"
    return f"{short} ({type(value).__name__})"
