"""Spans for OpenTelemetry, if the process has set a tracer provider; else nothing."""

from __future__ import annotations

import functools
import importlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


def span(
    name: str, attributes: Mapping[str, str | int], parent: Any = None
) -> AbstractContextManager[Any]:
    """Return a span around a block, which is the current one in it; an error is noted with it.

    It is part of the current span, or of what `here` returned elsewhere.
    """
    if not is_on():
        return nullcontext()
    tracer = _trace().get_tracer("relevo")
    found: AbstractContextManager[Any] = tracer.start_as_current_span(
        name, context=parent, attributes=dict(attributes)
    )
    return found


def waited(
    name: str, attributes: Mapping[str, str | int], parent: Any, began_ns: int, ended_by: Any
) -> None:
    """Note a span that began at a wall time and ends now; it links to the one that ended it.

    `parent` and `ended_by` are what `here` returned in its parent and in the other one.
    """
    trace = _trace()
    other = trace.get_current_span(ended_by).get_span_context()
    trace.get_tracer("relevo").start_span(
        name, context=parent, attributes=dict(attributes), start_time=began_ns,
        links=[trace.Link(other)],
    ).end()  # fmt: skip


def here() -> Any:
    """Return what makes the current span the parent of one that begins elsewhere."""
    return importlib.import_module("opentelemetry.context").get_current() if is_on() else None


def is_on() -> bool:
    """Whether spans are collected: without a provider each would cost time, and go nowhere.

    Hosts ask when they start, so a provider is set before that.
    """
    trace = _trace()
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )


@functools.cache
def _trace() -> Any:
    """`opentelemetry.trace`, or None; looked for once, since an import that fails is slow."""
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        return None
