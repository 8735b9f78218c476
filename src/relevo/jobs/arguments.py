"""Arguments of handlers: the data of a job as its function takes them, or a refusal by name."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import InvalidValue
from relevo.jobs.errors import UnknownArguments
from relevo.kernel.decoding import SHOWN_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from relevo.jobs.registry import Handler

_PLAIN: Final = (str, int, bool, float)
"""Types whose values are the same after they were stored as JSON."""

signature_of = functools.lru_cache(maxsize=1_024)(inspect.signature)


def converted(handler: Handler, data: Any) -> dict[str, Any]:
    """Return decoded data as arguments of the function, converted to its annotations.

    Raises `UnknownArguments` for names that the function does not have.
    """
    if not isinstance(data, dict):
        raise InvalidValue(
            f"data of {handler.name!r} is an object of arguments, not {_shown(data)}",
            pointer="data",
        )
    if data.keys() != handler.taken:
        _check_names(handler, data.keys())
    for name, value in data.items():
        wanted = handler.types.get(name, Any)
        if wanted is type(value) or wanted is Any:
            continue
        try:
            data[name] = msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            raise InvalidValue(
                f"argument {name!r} of handler {handler.name!r}: {error}; it came as"
                f" {_shown(value)}",
                pointer=f"data/{name}",
            ) from error
    return data


def check(handler: Handler, data: Any, text: str, where: str = "") -> None:
    """Refuse data that the function cannot take; `text` is the same as it is stored.

    A job's host reads the stored text, so that is what counts: 3.0 comes back as a float, a date as
    text. `where` names the element of a bulk submit.
    """
    if (handler.raw and handler.taken is None) or _obviously_fits(handler, data):
        return
    try:
        converted(handler, msgspec.json.decode(text))
    except UnknownArguments as error:
        known = ", ".join(sorted(handler.taken or ())) or "none"
        raise InvalidValue(
            f"{where}handler {handler.name!r} has no argument {error.arguments}; its arguments:"
            f" {known}",
            pointer="data",
        ) from None
    except InvalidValue as error:
        if where:
            raise InvalidValue(where + error.message, pointer=error.pointer) from None
        raise


def _obviously_fits(handler: Handler, data: Any) -> bool:
    """Whether data needs no closer look: exactly the arguments, of plain types."""
    if data is None:
        return not handler.required
    if type(data) is not dict or data.keys() != handler.taken:
        return False
    types = handler.types
    for name, value in data.items():
        wanted = types.get(name, Any)
        if wanted is not Any and (wanted is not type(value) or wanted not in _PLAIN):
            return False
    return True


def _check_names(handler: Handler, names: AbstractSet[str]) -> None:
    if handler.taken is not None and not names <= handler.taken:
        unknown = sorted(names - handler.taken)
        raise UnknownArguments(handler.name, ", ".join(repr(name[:64]) for name in unknown[:8]))
    if not names >= handler.required:
        lacking = sorted(handler.required - names)
        shown = ", ".join(f"{name!r}{_type_text(handler.types.get(name))}" for name in lacking)
        raise InvalidValue(f"{handler.name!r} needs {shown}, which data lacks", pointer="data")


def _type_text(wanted: Any) -> str:
    return "" if wanted is None else f" ({getattr(wanted, '__name__', wanted)})"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def named(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Return arguments by name, without the context, and with those of `**kwargs`."""
    parameters = bound.signature.parameters
    (first, context), *rest = bound.arguments.items()
    if parameters[first].kind is inspect.Parameter.VAR_POSITIONAL and len(context) > 1:
        raise InvalidValue(
            "this handler has positional parameters without names; give arguments by name"
        )
    found: dict[str, Any] = {}
    for name, value in rest:
        if parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def arguments_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call, without the context, as data of a job."""
    return named(signature_of(function).bind(None, *args, **kwargs))
