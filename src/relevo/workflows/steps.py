"""The steps that a workflow yields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.errors import InvalidValue
from relevo.kernel import callables
from relevo.kernel.checking import aware, seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta


class WaitTimedOut(TimeoutError):
    """The event of a `Wait` did not arrive in time."""


class Stage:
    """A named stage; calls its function, if it has one, stores the result and sends it back."""

    def __init__(
        self, name: str, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        if function is not None:
            callables.check(function, f"the function of stage {name!r}")
        self.name = name
        self.function = function
        self.args = args
        self.kwargs = kwargs

    @property
    def signature(self) -> str:
        """The identity of the step in the journal."""
        return f"Stage({self.name!r})"


class Wait:
    """Waits until an instant, or for an event; sends back the data of the event.

    After `timeout` seconds without the event, it raises `WaitTimedOut`. The time counts from when
    the workflow first reached this step.
    """

    def __init__(
        self, until: datetime | None = None, *, event: str | None = None, key: str = "",
        timeout: float | timedelta | None = None,
    ) -> None:  # fmt: skip
        if (until is None) == (event is None):
            raise InvalidValue("a Wait takes either `until` or `event`; give one of them")
        if timeout is not None and event is None:
            raise InvalidValue("`timeout` needs `event`; to wait for a time, use `until`")
        self.until = None if until is None else aware(until, "until")
        self.event = event
        self.key = key
        self.timeout = None if timeout is None else seconds(timeout)

    @property
    def signature(self) -> str:
        """The identity of the step in the journal, without the instant, which may be computed."""
        return "Wait(until)" if self.event is None else f"Wait({self.event!r}, {self.key!r})"


class Call:
    """Submits a job and waits for its end; sends back its result, or raises `JobFailed`.

    `child` is the definition of a job or workflow, or its name; options are those of `Jobs.submit`.
    """

    def __init__(self, child: Any, data: Any = None, **options: Any) -> None:
        self.child: str = child if isinstance(child, str) else child.name
        self.data = data
        self.options = options

    @property
    def signature(self) -> str:
        """The identity of the step in the journal."""
        return f"Call({self.child!r})"


class Return:
    """Ends the workflow with a result, which an async generator cannot return."""

    signature = "Return()"

    def __init__(self, value: Any) -> None:
        self.value = value


Step = Stage | Wait | Call | Return
