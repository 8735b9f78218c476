"""Whether a class of actors has the methods that its interfaces promise."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.actors.core.signature_text import accepts, type_text
from relevo.actors.markers import MethodOptions, options_of
from relevo.actors.signatures import EMPTY, MethodSpec, Parameter, read_signature
from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relevo.actors.interfaces import InterfaceSpec

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_implementation(cls: type, interfaces: Sequence[InterfaceSpec]) -> dict[str, MethodSpec]:
    """Return the methods that can be called, with the options of the interface and of the class.

    Raises `InvalidValue` that lists everything that is missing or does not fit.
    """
    found: dict[str, MethodSpec] = {}
    faults: list[str] = []
    for interface in interfaces:
        for name, declared in interface.methods.items():
            other = found.get(name)
            if other is not None and other.digest != declared.digest:
                faults.append(
                    f"{name}: {other.interface} and {interface.name} declare it differently"
                )
                continue
            function = inspect.getattr_static(cls, name, None)
            wrong = list(_faults(cls, declared, function, interface.interface))
            faults += [f"{name}: {fault}" for fault in wrong]
            if not wrong:
                found[name] = _with_options_of(other or declared, function)
    if faults:
        names = ", ".join(one.name for one in interfaces)
        raise InvalidValue(f"{cls.__qualname__} does not implement {names}: {'; '.join(faults)}")
    return found


def _with_options_of(declared: MethodSpec, function: Any) -> MethodSpec:
    """Each option that the class sets beside those of the interface counts."""
    own = options_of(function)
    if own is None:
        return declared
    base, plain = declared.options, MethodOptions()
    changed = {
        name: value
        for name in MethodOptions.__struct_fields__
        if (value := getattr(own, name)) != getattr(plain, name)
    }
    changed["raises"] = (*base.raises, *(kind for kind in own.raises if kind not in base.raises))
    return declared.with_options(msgspec.structs.replace(base, **changed))


def _faults(cls: type, declared: MethodSpec, function: Any, interface: type) -> Iterator[str]:
    if function is None or function is inspect.getattr_static(interface, declared.name):
        yield "is missing"
        return
    if not inspect.isfunction(function) or inspect.isasyncgenfunction(function):
        yield f"is a {type(function).__name__}, not a method; write `async def` or `def`"
        return
    if inspect.isgeneratorfunction(function):
        yield "is a generator, and calling it runs nothing of it; remove the `yield`"
        return
    try:
        parameters, result = read_signature(function, partly=True)
    except InvalidValue as error:
        yield error.message
        return
    yield from _parameter_faults(declared, parameters)
    if not (result is Any or accepts(declared.result, result)):
        yield f"returns {type_text(result)}, not {type_text(declared.result)}"


def _parameter_faults(declared: MethodSpec, parameters: tuple[Parameter, ...]) -> Iterator[str]:
    promised = declared.parameters
    for index, one in enumerate(promised):
        own = parameters[index] if index < len(parameters) else None
        if own is None or own.name != one.name:
            has = "nothing" if own is None else repr(own.name)
            yield f"parameter {index + 1} is {one.name!r} in {declared.interface}, and {has} here"
            return
        if own.keyword_only and not one.keyword_only:
            yield f"{one.name!r} is passed by name only here, and by position in the interface"
        if own.kind is inspect.Parameter.POSITIONAL_ONLY and one.keyword_only:
            yield f"{one.name!r} is passed by position only here, and by name in the interface"
        if not (own.annotation is Any or accepts(own.annotation, one.annotation)):
            yield (
                f"{one.name!r} is {type_text(own.annotation)}, which does not take every"
                f" {type_text(one.annotation)}"
            )
    for extra in parameters[len(promised) :]:
        if extra.kind not in _VARIADIC and extra.default is EMPTY:
            yield f"{extra.name!r} is no parameter in {declared.interface}; give it a default"
