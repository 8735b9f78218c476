"""The registered tables, steps and message bodies of an app."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.kernel import callables
from relevo.pipeline.model import DATA_MESSAGES, Step, StepMode, StepStage, checked

if TYPE_CHECKING:
    from relevo.pipeline.tables import Table

Body = Callable[..., Any]


class PipelineRegistry:
    """Tables, steps and message bodies, by name."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.steps: dict[str, Step] = {}
        self.bodies: dict[str, Body] = {}

    def add_table(self, table: Table) -> Table:
        """Register a table; raises `Conflict` if its name or set name is taken."""
        for one in self.tables.values():
            if one.name == table.name or one.set_name == table.set_name:
                raise Conflict(
                    f"table {one.name!r} with the set {one.set_name!r} is already registered; give"
                    " each its own name and set_name"
                )
        self.tables[table.name] = table
        return table

    def table(self, name: str) -> Table:
        """Return a table by its logical name."""
        table = self.tables.get(name)
        if table is None:
            known = ", ".join(sorted(self.tables)) or "none"
            raise NotFound(
                f"there is no table {name!r}; registered tables: {known}. Add it with app.table"
            )
        return table

    def add_step(self, step: Step) -> Step:
        """Register a step; raises `Conflict` if its name is taken."""
        checked(step)
        _check_body(step.function, f"step {step.name!r}")
        if step.name in self.steps:
            raise Conflict(
                f"step {step.name!r} is already registered; give each step its own name=…"
            )
        self.steps[step.name] = step
        return step

    def add_body(self, message: str, body: Body) -> None:
        """Register the body of a custom message."""
        if message in DATA_MESSAGES:
            raise InvalidValue(f"{message} is not a custom message; add to it with app.step")
        if message in self.bodies:
            raise Conflict(f"message {message!r} already has a body; use another name")
        _check_body(body, f"the body of {message!r}")
        self.bodies[message] = body

    def step(self, name: str) -> Step:
        """Return a step by name."""
        step = self.steps.get(name)
        if step is None:
            raise NotFound(f"there is no step {name!r}; app.pipeline.registry.steps lists them")
        return step

    def matching(self, message: str, table: str | None) -> list[Step]:
        """Return the steps of a message on a table, by rank and registration."""
        steps = [
            step for step in self.steps.values()
            if step.message == message and step.table in (None, table)
        ]  # fmt: skip
        return sorted(steps, key=lambda one: one.rank)  # stable: registration decides ties

    def check(self) -> None:
        """Raise if a step names a table or message that is not registered."""
        for one in self.steps.values():
            if one.table is not None:
                self.table(one.table)
            if one.message not in DATA_MESSAGES and one.message not in self.bodies:
                raise InvalidValue(
                    f"step {one.name!r} is for message {one.message!r}, which has no body; add"
                    f" one with app.message({one.message!r})"
                )


def at(steps: list[Step], stage: StepStage, mode: StepMode) -> list[Step]:
    """Return the steps of a stage and mode."""
    return [step for step in steps if step.stage == stage and step.mode == mode]


def callable_of(made: Any, configuration: str | None, secure: str | None) -> tuple[Body, bool]:
    """Return the function to call with the context, and whether it is a coroutine function.

    A class is created with its configuration and secure configuration; its `execute` is called.
    """
    function: Any = made
    if inspect.isclass(made):
        maker: Any = made
        function = maker(configuration, secure).execute
    if not callables.parameters(function, "the function"):
        function = callables.ignoring_context(function)
    return function, callables.is_async(function)


def _check_body(made: Any, what: str) -> None:
    """Raise if a function or class cannot be called with the context or without arguments."""
    if not inspect.isclass(made):
        callables.check(made, what)
        if callables.parameters(made, what):
            callables.check(made, what, "ctx")
    elif (execute := getattr(made, "execute", None)) is None:
        raise InvalidValue(f"{what} must be a function or a class with execute(ctx), not {made!r}")
    else:
        callables.check(execute, what)
