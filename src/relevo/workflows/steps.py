"""What a workflow yields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.errors import InvalidValue
from relevo.kernel import callables
from relevo.kernel.checking import aware, seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta


class WaitTimedOut(TimeoutError):
    """Raised at a `Wait` whose event did not come in time."""


class Stage:
    """A named stage; if it has a function, that is called and its result written and sent back."""

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
        """By what it is known again."""
        return f"Stage({self.name!r})"


class Wait:
    """Wait until an instant, or for an event; sends back the data of the event.

    `timeout` (seconds) bounds the wait for an event: then `WaitTimedOut` is raised. The time runs
    from when the workflow first came here.
    """

    def __init__(
        self, until: datetime | None = None, *, event: str | None = None, key: str = "",
        timeout: float | timedelta | None = None,
    ) -> None:  # fmt: skip
        if (until is None) == (event is None):
            raise InvalidValue("a Wait has either `until` or `event`")
        if timeout is not None and event is None:
            raise InvalidValue("`timeout` bounds the wait for an event; without one, give `until`")
        self.until = None if until is None else aware(until, "until")
        self.event = event
        self.key = key
        self.timeout = None if timeout is None else seconds(timeout)

    @property
    def signature(self) -> str:
        """By what it is known again; an instant may be computed otherwise."""
        return "Wait(until)" if self.event is None else f"Wait({self.event!r}, {self.key!r})"


class Call:
    """Submit a job and wait for its end; sends back its result, raises `JobFailed` if it has none.

    `child` is a job's or workflow's definition, or its name; options are those of `Jobs.submit`.
    """

    def __init__(self, child: Any, data: Any = None, **options: Any) -> None:
        self.child: str = child if isinstance(child, str) else child.name
        self.data = data
        self.options = options

    @property
    def signature(self) -> str:
        """By what it is known again."""
        return f"Call({self.child!r})"


class Return:
    """End with a result; a generator cannot return one."""

    signature = "Return()"

    def __init__(self, value: Any) -> None:
        self.value = value


Step = Stage | Wait | Call | Return
