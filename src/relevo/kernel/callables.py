"""Functions of users: coroutine functions, plain ones, partials, decorated ones, objects.

Every part that takes a callable calls it by one of these functions, so that one rule holds
everywhere: a result that can be awaited is awaited, on the event loop. Whether a callable is known
to be a coroutine function only decides where it is called: those on the loop, all others, where
they may block, in a thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from relevo.errors import HandlerError, InvalidValue

P = ParamSpec("P")
R = TypeVar("R")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call is known to return a coroutine; False may also mean unknown."""
    return any(inspect.iscoroutinefunction(one) for one in _bodies(function))


def check(function: Any, what: str, *arguments: str) -> None:
    """Refuse a callable that cannot be called with so many arguments, or would never run.

    `what` names it for the caller, such as `"the handler of 'billing'"`; without arguments only
    the kind of callable is checked. Raises `InvalidValue`.
    """
    if inspect.isclass(function):
        raise InvalidValue(
            f"{what} is the class {function.__qualname__}, and calling it only makes an instance;"
            " give a function, or an instance whose class has __call__"
        )
    if not callable(function):
        raise InvalidValue(f"{what} is {function!r}, which cannot be called; give a function")
    for body in _bodies(function):
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise InvalidValue(
                f"{what} is a generator function, and calling it runs nothing of it; remove the"
                " `yield`"
            )
    if arguments:
        _check_arguments(function, what, arguments)


def check_name(name: Any, decorator: str) -> None:
    """Refuse a decorator without parentheses, whose name is then the function below it."""
    if callable(name):
        own = getattr(name, "__name__", "name")
        raise InvalidValue(
            f'@{decorator} is written without parentheses above {own}; write @{decorator}("{own}")'
        )
    if not isinstance(name, str) or not name:
        raise InvalidValue(f'@{decorator} takes a name, as @{decorator}("name"), not {name!r}')


def check_parameters(rest: Iterable[inspect.Parameter], what: str) -> None:
    """Refuse a context that does not come first, and defaults that all calls would share.

    `rest` are the parameters behind the first one, or behind the context.
    """
    for one in rest:
        if _is_context(one):
            raise InvalidValue(
                f"{what} has the context {str(one)!r} behind other parameters; put it first"
            )
        if isinstance(one.default, list | dict | set | bytearray):
            raise InvalidValue(
                f"{what} has the default {one.name}={one.default!r}, which all calls in a process"
                f" would share and change; write {one.name}=None, and make a new"
                f" {type(one.default).__name__} inside"
            )


def place(function: Any) -> str:
    """Return where a function is defined: `shop.jobs.charge (line 12)`.

    >>> place(discard).partition(" (")[0]
    'relevo.kernel.callables.discard'
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} (line {code.co_firstlineno})"


def named_if_forgotten(
    name: Callable[..., str],
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Decorate a coroutine function whose call is useless without `await`.

    Python's warning about a coroutine that was never awaited then says what `name` returns for the
    arguments of the call.
    """

    def decorate(
        function: Callable[P, Coroutine[Any, Any, R]],
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            coroutine: Any = function(*args, **kwargs)
            coroutine.__qualname__ = name(*args, **kwargs)
            return cast("Coroutine[Any, Any, R]", coroutine)

        return call

    return decorate


def parameters(function: Callable[..., Any], what: str) -> list[inspect.Parameter]:
    """Return the parameters of a callable; raises `InvalidValue` if they are unknown."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidValue(
            f"{what} is {function!r}, which does not say what it takes; wrap it in a function"
        ) from error


def takes_context(function: Callable[..., Any], what: str) -> bool:
    """Whether the first parameter of a handler, whose others have names, is for the context.

    It is if it is named `ctx` or `context`, or is annotated with a context, or is `_` or `*args`.
    """
    taken = parameters(function, what)
    if not taken or taken[0].kind in (taken[0].KEYWORD_ONLY, taken[0].VAR_KEYWORD):
        return False
    first = taken[0]
    return (
        first.kind is first.VAR_POSITIONAL
        or first.name.strip("_") in ("", "ctx", "context")
        or _is_context(first)
    )


def _is_context(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated with a context, or named `ctx` without an annotation."""
    note = parameter.annotation
    if note is parameter.empty:
        return parameter.name == "ctx" and parameter.kind is not parameter.VAR_KEYWORD
    named = note if isinstance(note, str) else getattr(note, "__name__", "")
    return named.endswith("Context")


def ignoring_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the context first, for one that does without."""
    if is_async(function):

        async def call_async(_: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        called: Any = call_async
    else:

        def call_plain(_: Any, /, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        called = call_plain
    functools.update_wrapper(called, function)
    signature = inspect.signature(function)
    first = inspect.Parameter("_", inspect.Parameter.POSITIONAL_ONLY)
    called.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])
    return cast("Callable[..., Any]", called)


async def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call on the event loop and return the awaited result; for non-blocking callbacks."""
    return await settled(function(*args, **kwargs))


async def run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call and return the awaited result; a callable that may block runs in a thread."""
    if is_async(function):
        return await call(function, *args, **kwargs)
    return await settled(await asyncio.to_thread(function, *args, **kwargs))


async def settled(answer: Any) -> Any:
    """Return the result of a call, awaited if it is awaitable.

    An iterator is refused, since it has done nothing of what it stands for: raises `HandlerError`.
    """
    while inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, Iterator | AsyncIterator):
        raise HandlerError(
            f"a function of yours returned a {type(answer).__name__}, which does nothing until"
            " somebody iterates over it; run it to its end and return the result"
        )
    return answer


def discard(answer: Any) -> None:
    """Drop an awaitable that is not awaited any more, without a warning."""
    if inspect.iscoroutine(answer):
        answer.close()


def _bodies(function: Any) -> tuple[Any, ...]:
    """The functions behind a callable that decide the type of its result."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(type(function), "__call__", None)  # noqa: B004 - not whether, what


def _check_arguments(function: Callable[..., Any], what: str, arguments: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # unknown until its first call
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise InvalidValue(
            f"{what} is called with ({', '.join(arguments)}), which {signature} does not fit:"
            f" {error}"
        ) from error
