"""Annotations of methods: their text, a digest of it, and which fit which. Pure."""

from __future__ import annotations

import types
import typing
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

_UNIONS: Final = (typing.Union, types.UnionType)
_NAMED: Final = (
    shapes.StructType,
    shapes.DataclassType,
    shapes.TypedDictType,
    shapes.NamedTupleType,
)


def type_text(annotation: Any) -> str:
    """Return an annotation as a reader would write it."""
    if annotation is None or annotation is type(None):
        return "None"
    origin = typing.get_origin(annotation)
    if origin in _UNIONS:
        return " | ".join(type_text(part) for part in typing.get_args(annotation))
    if origin is typing.Annotated:
        return type_text(typing.get_args(annotation)[0])
    if origin is typing.Literal or origin is None:
        name = getattr(annotation, "__name__", "") if isinstance(annotation, type) else ""
        return name or str(annotation).replace("typing.", "")
    parts = ", ".join("…" if part is ... else type_text(part) for part in _arguments(annotation))
    return f"{getattr(origin, '__name__', origin)}[{parts}]"


def digest(parameters: list[tuple[str, Any]], result: Any) -> str:
    """Return a short hash of a signature that changes with its names and types.

    Fields of structs and dataclasses count; defaults and module paths do not.
    """
    taken = ", ".join(f"{name}: {shape_text(kind)}" for name, kind in parameters)
    text = f"({taken}) -> {shape_text(result)}"
    return blake2b(text.encode(), digest_size=8).hexdigest()


def shape_text(annotation: Any) -> str:
    """Return the stable text of all that a value of an annotation may look like when encoded."""
    return _shape(shapes.type_info(annotation), ())


def _shape(info: Any, outer: tuple[type, ...]) -> str:
    match info:
        case shapes.Metadata():
            return _shape(info.type, outer)
        case shapes.UnionType():
            return "|".join(sorted(_shape(one, outer) for one in info.types))
        case shapes.LiteralType():
            return f"literal({', '.join(sorted(map(repr, info.values)))})"
        case shapes.EnumType():
            members = sorted(repr(member.value) for member in info.cls)
            return f"{info.cls.__name__}({', '.join(members)})"
        case shapes.CustomType():
            return str(info.cls.__name__)
        case _ if isinstance(info, _NAMED):
            return _named(info, outer)
        case shapes.Type():
            return _plain(info, outer)
        case tuple():
            return f"({', '.join(_shape(one, outer) for one in info)})"
        case _:
            return repr(info)


def _named(info: Any, outer: tuple[type, ...]) -> str:
    name = str(info.cls.__name__)
    if info.cls in outer:
        return name
    fields = ", ".join(
        f"{getattr(field, 'encode_name', field.name)}: {_shape(field.type, (*outer, info.cls))}"
        for field in info.fields
    )
    marks = f"#{info.tag!r}" if getattr(info, "tag", None) is not None else ""
    marks += "[]" if getattr(info, "array_like", False) else ""
    return f"{name}{marks}({fields})"


def _plain(info: shapes.Type, outer: tuple[type, ...]) -> str:
    name = type(info).__name__.removesuffix("Type").lower()
    details = [
        f"{field}={_shape(value, outer)}"
        for field in info.__struct_fields__
        if (value := getattr(info, field)) is not None
    ]
    return f"{name}({', '.join(details)})" if details else name


def accepts(wide: Any, narrow: Any) -> bool:
    """Whether each value of the second annotation fits the first one."""
    if wide is Any or wide is object or wide == narrow:
        return True
    if typing.get_origin(wide) is typing.Annotated or typing.get_origin(narrow) is typing.Annotated:
        return accepts(_bare(wide), _bare(narrow)) and typing.get_origin(wide) is None
    if typing.get_origin(narrow) in _UNIONS:
        return all(accepts(wide, part) for part in typing.get_args(narrow))
    if typing.get_origin(wide) in _UNIONS:
        return any(accepts(part, narrow) for part in typing.get_args(wide))
    return _accepts_class(wide, narrow)


def _accepts_class(wide: Any, narrow: Any) -> bool:
    outer, inner = typing.get_origin(wide) or wide, typing.get_origin(narrow) or narrow
    if not (isinstance(outer, type) and isinstance(inner, type)):
        return False
    if not (issubclass(inner, outer) or (outer is float and inner is int)):
        return False
    wides, narrows = _arguments(wide), _arguments(narrow)
    if not wides:
        return True
    return len(wides) == len(narrows) and all(map(accepts, wides, narrows))


def _arguments(annotation: Any) -> tuple[Any, ...]:
    return typing.get_args(annotation)


def _bare(annotation: Any) -> Any:
    if typing.get_origin(annotation) is typing.Annotated:
        return typing.get_args(annotation)[0]
    return annotation


def problem_of(annotation: Any) -> str | None:
    """Return why values of an annotation cannot be encoded, or None."""
    try:
        msgspec.msgpack.Decoder(annotation)
    except (TypeError, ValueError, NameError) as error:
        return str(error).splitlines()[0]
    return None
