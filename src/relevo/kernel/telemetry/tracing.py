"""Spans for OpenTelemetry, if the process has set a tracer provider; else nothing.

Work that is stored now and done later keeps the *trace parent* of the span that stored it, in the
form of the W3C (`00-<trace>-<span>-<flags>`). The first attempt is part of that trace. Later ones
begin a trace of their own with a link to it, so that no trace lasts for days, and so does a call
for several messages. Names and attributes follow OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

import functools
import importlib
import re
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

TRACEPARENT: Final = "traceparent"
"""The header, property or detail that carries a trace parent."""
_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
Attributes = dict[str, str | int]
SpanKind = Literal["INTERNAL", "SERVER", "PRODUCER", "CONSUMER"]


class TracedWork(Struct, frozen=True, kw_only=True):
    """Stored work that is being done, as its span shows it."""

    destination: str
    """The handler of a job, the queue or subscription of a message."""
    id: str
    count: int = 1
    """How many messages are done together."""
    parents: tuple[str, ...] = ()
    """The trace parents that it was stored with; what is none is ignored."""
    first: bool = True
    """Whether this is the first attempt."""
    attributes: Attributes = {}


def span(
    name: str, attributes: Mapping[str, str | int], parent: Any = None
) -> AbstractContextManager[Any]:
    """Return a span around a block, which is the current one in it; an error is noted with it.

    It is part of the current span, or of what `here` returned elsewhere.
    """
    return _opened(name, dict(attributes), "INTERNAL", parent) if is_on() else nullcontext()


def sending(operation: str, destination: str, count: int = 1) -> AbstractContextManager[Any]:
    """Return a span around the storing of work that is done later; `parent` belongs into it."""
    if not is_on():
        return nullcontext()
    attributes = _messaging(operation, "send", destination)
    if count > 1:
        attributes["messaging.batch.message_count"] = count
    return _opened(f"{operation} {destination}", attributes, "PRODUCER")


def processing(work: TracedWork) -> AbstractContextManager[Any]:
    """Return a span around the doing of stored work."""
    if not is_on():
        return nullcontext()
    attributes = _messaging("process", "process", work.destination) | work.attributes
    if work.count > 1:
        attributes["messaging.batch.message_count"] = work.count
    else:
        attributes["messaging.message.id"] = work.id
    name, trace = f"process {work.destination}", _trace()
    contexts = [found for one in dict.fromkeys(work.parents) if (found := _span_context(one))]
    if work.first and work.count == 1 and contexts:
        return _opened(name, attributes, "CONSUMER", _around(contexts[0]))
    links = [trace.Link(one) for one in contexts]
    return _opened(name, attributes, "CONSUMER", _nowhere(), links)


def serving(method: str, traceparents: Sequence[bytes] = ()) -> AbstractContextManager[Any]:
    """Return a span around an HTTP request: part of the current one, else of its client's.

    Its headers `traceparent` say which that is; `show_request` says what it was.
    """
    if not is_on():
        return nullcontext()
    found = traceparents[0].decode("latin-1") if len(traceparents) == 1 else None
    return _opened(method, {"http.request.method": method}, "SERVER", here(found))


def show_request(span: Any, method: str, route: str | None, operation: str, status: int) -> None:
    """Tell a span what was asked and how it ended; neither query nor body, which may be secret."""
    if span is None:
        return
    attributes: Attributes = {"http.response.status_code": status, "relevo.operation": operation}
    if route is not None:
        span.update_name(f"{method} {route}")
        attributes["http.route"] = route
    if status >= 500:
        attributes["error.type"] = str(status)
        span.set_status(_trace().StatusCode.ERROR)
    span.set_attributes(attributes)


def here(traceparent: str | None = None) -> Any:
    """Return what makes the current span the parent of one that begins elsewhere.

    Without a current span, that of a trace parent from elsewhere is.
    """
    if not is_on():
        return None
    if traceparent is not None and not _trace().get_current_span().get_span_context().is_valid:
        context = _span_context(traceparent)
        if context is not None:
            return _around(context)
    return importlib.import_module("opentelemetry.context").get_current()


def parent() -> str | None:
    """Return the current span as a trace parent; None if there is none."""
    if not is_on():
        return None
    context = _trace().get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


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


def is_on() -> bool:
    """Whether spans are collected: without a provider each would cost time, and go nowhere.

    Hosts ask when they start, so a provider is set before that.
    """
    trace = _trace()
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )


def _messaging(operation: str, kind: str, destination: str) -> Attributes:
    return {
        "messaging.system": "relevo", "messaging.operation.name": operation,
        "messaging.operation.type": kind, "messaging.destination.name": destination,
    }  # fmt: skip


@contextmanager
def _opened(
    name: str,
    attributes: Attributes,
    kind: SpanKind,
    context: Any = None,
    links: Sequence[Any] = (),
) -> Iterator[Any]:
    trace = _trace()
    with trace.get_tracer("relevo").start_as_current_span(
        name, context=context, kind=trace.SpanKind[kind], attributes=attributes, links=links
    ) as opened:
        try:
            yield opened
        except Exception as error:
            opened.set_attribute("error.type", type(error).__qualname__)
            raise


def _span_context(traceparent: str) -> Any:
    """Return the span that a trace parent names; None if it is none."""
    found = _PARENT.fullmatch(traceparent)
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    trace = _trace()
    context = trace.SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags)
    )
    return context if context.is_valid else None


def _around(context: Any) -> Any:
    """Return surroundings in which the span of a context is the current one."""
    trace = _trace()
    return trace.set_span_in_context(trace.NonRecordingSpan(context), _nowhere())


def _nowhere() -> Any:
    """Return surroundings without a span."""
    return importlib.import_module("opentelemetry.context").Context()


@functools.cache
def _trace() -> Any:
    """`opentelemetry.trace`, or None; looked for once, since an import that fails is slow."""
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        return None
