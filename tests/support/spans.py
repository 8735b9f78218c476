"""Spans as a tracer of opentelemetry would collect them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from relevo.kernel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoProvider:
    """Stands for the provider that opentelemetry has until a process sets one."""


class Spans:
    """Stands for opentelemetry's tracer."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, dict[str, Any], str]] = []
        self.parents: list[Any] = []
        """What was given as the surroundings of each span."""
        self.provider: Any = self
        self.here: Any = None
        """The present surroundings."""

    @contextmanager
    def start_as_current_span(
        self, name: str, *, context: Any = None, attributes: dict[str, Any]
    ) -> Iterator[None]:
        self.parents.append(context)
        outcome = "failed"
        try:
            yield
            outcome = "returned"
        finally:
            self.ended.append((name, attributes, outcome))


@pytest.fixture(name="spans")
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    found = Spans()
    trace = ModuleType("opentelemetry.trace")
    trace.get_tracer = lambda _: found  # type: ignore[attr-defined]
    trace.get_tracer_provider = lambda: found.provider  # type: ignore[attr-defined]
    trace.ProxyTracerProvider = NoProvider  # type: ignore[attr-defined]
    context = ModuleType("opentelemetry.context")
    context.get_current = lambda: found.here  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", context)
    tracing._trace.cache_clear()
    yield found
    tracing._trace.cache_clear()
