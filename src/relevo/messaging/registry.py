"""Consumers of an app: names, sources, slots and handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue
from relevo.kernel import callables
from relevo.kernel.running.budgets import Budgets
from relevo.kernel.running.places import place_of
from relevo.messaging.core import names, preempting, scaling
from relevo.messaging.core.hours import Hours
from relevo.messaging.model import Across, Preemption, Scaling

if TYPE_CHECKING:
    from collections.abc import Sequence

HandlerKind = Literal["async", "thread", "process"]
SHARED: Final = ("sources", "across", "hours", "preempt", "scaling")
"""What all hosts that serve the same consumers have to agree on; the rest is each host's own."""
CONCURRENCY_MAX: Final = 10_000
BATCH_MAX: Final = 1_000
_UNSTORED: Final = ("name", "handler", "kind")


class ConsumersDefinition(Struct, frozen=True, kw_only=True):
    """A set of consumers: where its messages come from, and how its handler runs."""

    name: str
    handler: Callable[..., Any]
    """Gets a message, or with `batch` a list of messages."""
    kind: HandlerKind = "async"
    sources: tuple[str, ...]
    """Paths of queues and subscriptions, the first goes first."""
    across: Across = "strict"
    concurrency: int = 1
    """Slots on each host."""
    reserved: Mapping[str, int] = {}
    """Slots by class, which classes below it may not use."""
    max_per_class: Mapping[str, int] = {}
    """Slots by class that its messages use at most, on each host."""
    max_per_fairness_key: int | None = None
    """Slots that messages of one tenant use at most, on each host."""
    prefetch: Literal["auto", 0] = "auto"
    """Whether messages are claimed ahead of free slots, if they begin within 100 ms."""
    batch: int = 1
    """How many messages the handler gets at once, at most."""
    time_limit: float | None = 120.0
    hours: str | None = None
    """Daily windows outside of which nothing is claimed: `22:00-06:00 Europe/Madrid`."""
    preempt: Preemption | None = None
    """When messages of a higher class suspend those of a lower one; None is never."""
    scaling: Scaling = Scaling()
    pool: str | None = None
    """A governed pool: no more messages are claimed than it has permits for."""
    limit: str | None = None
    """A governed rate limit, in the same way."""

    @property
    def is_limited(self) -> bool:
        """Whether it depends on class or tenant which message may have a slot."""
        return bool(self.reserved or self.max_per_class or self.max_per_fairness_key)

    def stored(self) -> str:
        """Return the definition as other hosts and people read it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        kept = {name: value for name, value in fields.items() if name not in _UNSTORED}
        return msgspec.json.encode({**kept, "handler": self.kind}).decode()


class ConsumersRegistry:
    """The consumers of an app; filled before it serves."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumersDefinition] = {}
        self.budgets = Budgets()
        """Opens the pools and limits that consumers name."""

    def add(self, definition: ConsumersDefinition) -> None:
        """Add consumers; refuses a second definition with the same name."""
        if definition.name in self.consumers:
            first = self.consumers[definition.name].handler
            raise Conflict(
                f"there are consumers {definition.name!r} already: {callables.place(first)}, and"
                f" now {callables.place(definition.handler)}; give each their own name"
            )
        self.consumers[definition.name] = definition


def defined(
    name: str,
    sources: Sequence[str],
    handler: Callable[..., Any],
    *,
    process: bool = False,
    **options: Any,
) -> ConsumersDefinition:
    """Return consumers that can be served, or refuse an option by name."""
    what = f"the handler of {name!r}"
    callables.check(handler, what, "message")
    callables.check_parameters(callables.parameters(handler, what)[1:], what)
    if process:
        place_of(handler)  # refuses a function that no other process can import
    kind: HandlerKind = (
        "process" if process else "async" if callables.is_async(handler) else "thread"
    )
    options["reserved"] = options.get("reserved") or {}
    options["max_per_class"] = options.get("max_per_class") or {}
    definition = ConsumersDefinition(
        name=name, handler=handler, kind=kind, sources=_checked_sources(sources), **options
    )
    return _checked(definition)


def _checked_sources(sources: Sequence[str]) -> tuple[str, ...]:
    paths = [names.Path.of(source) for source in sources]
    if not paths:
        raise InvalidValue(
            "sources is empty; name at least one queue or subscription", pointer="sources"
        )
    for path in paths:
        if path.sub_queue is not None:
            raise InvalidValue(
                f"{path} is a dead-letter queue, which consumers do not serve; receive from it by"
                " hand, or redrive it",
                pointer="sources",
            )
    if len({path.key for path in paths}) < len(paths):
        raise InvalidValue("sources names an entity twice; name each once", pointer="sources")
    return tuple(str(path) for path in paths)


def _checked(found: ConsumersDefinition) -> ConsumersDefinition:
    names.check(found.name, "consumers")
    if found.across not in ("strict", "weighted"):
        raise InvalidValue(
            f"across is {found.across!r}; it must be strict or weighted", pointer="across"
        )
    _in_range("concurrency", found.concurrency, CONCURRENCY_MAX)
    _in_range("batch", found.batch, BATCH_MAX)
    for name, most in found.max_per_class.items():
        _in_range(f"max_per_class/{name}", most, CONCURRENCY_MAX)
    if found.max_per_fairness_key is not None:
        _in_range("max_per_fairness_key", found.max_per_fairness_key, CONCURRENCY_MAX)
    if min(found.reserved.values(), default=0) < 0 or (
        sum(found.reserved.values()) > found.concurrency
    ):
        raise InvalidValue(
            f"reserved is {dict(found.reserved)}, and there are {found.concurrency} slots; the"
            " numbers must not be negative, nor more than the slots together",
            pointer="reserved",
        )
    if found.prefetch not in ("auto", 0):
        raise InvalidValue(
            f"prefetch is {found.prefetch!r}; it must be 'auto', or 0 to claim only for free slots",
            pointer="prefetch",
        )
    if found.time_limit is not None and not found.time_limit > 0:
        raise InvalidValue(
            f"time_limit is {found.time_limit} seconds; it must be more than 0, or None for no"
            " limit",
            pointer="time_limit",
        )
    if found.hours is not None:
        Hours.of(found.hours)
    if found.preempt is not None:
        preempting.checked(found.preempt, process=found.kind == "process")
    scaling.checked(found.scaling)
    if found.batch > 1 and (found.is_limited or found.preempt is not None):
        raise InvalidValue(
            "batch is more than 1; reserved, max_per_class, max_per_fairness_key and preempt work"
            " message by message, so leave them out or set batch=1",
            pointer="batch",
        )
    return found


def _in_range(name: str, value: Any, most: int) -> None:
    if not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidValue(f"{name} is {value!r}; it must be from 1 to {most}", pointer=name)
