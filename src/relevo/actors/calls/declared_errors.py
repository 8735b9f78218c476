"""How an error that a method declares travels: its arguments and attributes, never pickled.

Attributes are decoded by the annotations of the class, or of the parameters of its `__init__`. The
error is built again without calling `__init__`.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

if TYPE_CHECKING:
    from relevo.actors.interfaces import Interfaces

_FAULTS: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


_NIL: Final = Raw(b"\xc0")


class _ErrorBody(Struct, array_like=True):
    args: Raw = _NIL
    """Nil: the message alone."""
    typed: bool = False
    """Whether the arguments have the types of the parameters of `__init__`."""
    fields: dict[str, Raw] = {}


_BODIES: Final = msgspec.msgpack.Decoder(_ErrorBody)


def encode_error(codec: Interfaces, kind: type[Exception], error: BaseException) -> bytes:
    """Return the body of an error that travels as a class of its own or of its bases."""
    body = _ErrorBody()
    annotations, parameters = _types(kind)
    for typed in (False, True):
        with contextlib.suppress(*_FAULTS):
            encoded = codec.encoder.encode(error.args)
            decoder = codec.decoder(_arguments(parameters, typed))
            if decoder.decode(encoded) == error.args:
                body.args, body.typed = Raw(encoded), typed
                break
    left_out = []
    for name, value in vars(error).items():
        if name.startswith("_relevo_") or name == "__notes__":
            continue
        try:
            encoded = codec.encoder.encode(value)
            codec.decoder(annotations.get(name, Any)).decode(encoded)
        except _FAULTS:
            left_out.append(name)
        else:
            body.fields[name] = Raw(encoded)
    notes = list(getattr(error, "__notes__", ()))
    if type(error) is not kind:
        notes.append(f"raised as {type(error).__qualname__}")
    if left_out:
        notes.append(f"attributes that cannot travel were left out: {', '.join(left_out)}")
    if notes:
        body.fields["__notes__"] = Raw(codec.encoder.encode(notes))
    return codec.encoder.encode(body)


def decode_error(
    codec: Interfaces, kind: type[Exception], body: bytes, message: str
) -> Exception | None:
    """Return the error of a body; None if it is of other code than this program's."""
    annotations, parameters = _types(kind)
    try:
        decoded = _BODIES.decode(body)
        args: tuple[Any, ...] = (message,)
        if decoded.args != _NIL:
            args = codec.decoder(_arguments(parameters, decoded.typed)).decode(decoded.args)
        fields = {
            name: codec.decoder(annotations.get(name, Any)).decode(value)
            for name, value in decoded.fields.items()
        }
    except _FAULTS:
        return None
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


def _arguments(parameters: tuple[Any, ...], typed: bool) -> Any:
    return tuple[parameters] if typed else tuple[Any, ...]  # type: ignore[valid-type]


def _types(kind: type[Exception]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The annotations of attributes by name, and those of the parameters of `__init__`."""
    try:
        signature = list(inspect.signature(kind.__init__).parameters.values())[1:]
        hints = typing.get_type_hints(kind.__init__)
        attributes = {
            name: hint for name, hint in typing.get_type_hints(kind).items() if _is_attribute(hint)
        }
    except (NameError, TypeError, ValueError, AttributeError):
        return {}, ()
    taken = {one.name: hints.get(one.name, Any) for one in signature}
    positional = tuple(
        taken[one.name] for one in signature if one.kind is one.POSITIONAL_OR_KEYWORD
    )
    return {**taken, **attributes}, positional


def _is_attribute(hint: Any) -> bool:
    return typing.get_origin(hint) is not typing.ClassVar and hint is not typing.ClassVar
