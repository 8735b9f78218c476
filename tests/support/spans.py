"""Spans as OpenTelemetry collects them in a process that has set a tracer provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext


class Spans:
    """The spans that have ended, and those that a test opens itself."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def opened(self, name: str) -> AbstractContextManager[Any]:
        """A span of the program around Relevo."""
        return self.provider.get_tracer("test").start_as_current_span(name)

    @property
    def ended(self) -> list[ReadableSpan]:
        """In the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.ended if one.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


def context(span: ReadableSpan) -> SpanContext:
    """The ids of a span."""
    found: SpanContext | None = span.context
    assert found is not None
    return found


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Trace and span id of a span."""
    return context(span).trace_id, context(span).span_id


def linked(span: ReadableSpan) -> set[tuple[int, int]]:
    """The ids of the spans that a span is linked to."""
    return {(one.context.trace_id, one.context.span_id) for one in span.links}


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    """Whether a span is part of another one."""
    parent = span.parent
    return parent is not None and (parent.trace_id, parent.span_id) == ids(of)


@pytest.fixture(name="spans")
def collected(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Collect spans; a provider can be set once in a process, and this one leaves again."""
    spans = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    return spans
