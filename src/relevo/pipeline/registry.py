"""What an app has registered: tables, steps, bodies of custom messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.kernel import callables
from relevo.pipeline.model import DATA_MESSAGES, Mode, Stage, Step, checked

if TYPE_CHECKING:
    from relevo.pipeline.tables import Table

Body = Callable[..., Any]


class Registry:
    """Tables, steps and messages by name; steps in the order in which they run."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.steps: dict[str, Step] = {}
        self.bodies: dict[str, Body] = {}

    def add_table(self, table: Table) -> Table:
        """Take a table; a second one of its name, or of its set's name, is refused."""
        for one in self.tables.values():
            if one.name == table.name or one.set_name == table.set_name:
                raise Conflict(
                    f"there is a table {one.name!r} with the set {one.set_name!r} already; give"
                    " each its own name and set_name"
                )
        self.tables[table.name] = table
        return table

    def table(self, name: str) -> Table:
        """Return a table by its logical name."""
        found = self.tables.get(name)
        if found is None:
            known = ", ".join(sorted(self.tables)) or "none"
            raise NotFound(
                f"there is no table {name!r}; registered are {known}: add it with app.table"
            )
        return found

    def add_step(self, step: Step) -> Step:
        """Take a step; a second one of its name is refused."""
        checked(step)
        _check_body(step.function, f"step {step.name!r}")
        if step.name in self.steps:
            raise Conflict(f"there is a step {step.name!r} already; give each its own name=…")
        self.steps[step.name] = step
        return step

    def add_body(self, message: str, body: Body) -> None:
        """Take the body of a custom message."""
        if message in DATA_MESSAGES:
            raise InvalidValue(f"{message} is done by the service; use app.step to add to it")
        if message in self.bodies:
            raise Conflict(f"message {message!r} has a body already; give each its own name")
        _check_body(body, f"the body of {message!r}")
        self.bodies[message] = body

    def step(self, name: str) -> Step:
        """Return a step by name."""
        found = self.steps.get(name)
        if found is None:
            raise NotFound(f"there is no step {name!r}; see app.pipeline.registry.steps")
        return found

    def matching(self, message: str, table: str | None) -> list[Step]:
        """Return the steps of a message on a table, by rank and registration."""
        found = [
            one for one in self.steps.values()
            if one.message == message and one.table in (None, table)
        ]  # fmt: skip
        return sorted(found, key=lambda one: one.rank)  # stable: registration decides ties

    def check(self) -> None:
        """Refuse steps of tables and messages that nobody has registered."""
        for one in self.steps.values():
            if one.table is not None:
                self.table(one.table)
            if one.message not in DATA_MESSAGES and one.message not in self.bodies:
                raise InvalidValue(
                    f"step {one.name!r} is for the message {one.message!r}, which has no body; add"
                    f" one with app.message({one.message!r})"
                )


def at(steps: list[Step], stage: Stage, mode: Mode) -> list[Step]:
    """Return those of some steps that are of a stage and mode."""
    return [one for one in steps if one.stage == stage and one.mode == mode]


def callable_of(made: Any, configuration: str | None, secure: str | None) -> tuple[Body, bool]:
    """Return what is called with the context, and whether it is a coroutine function.

    A class is made once with its configuration and secure configuration; its `execute` is called.
    """
    function: Any = made
    if inspect.isclass(made):
        maker: Any = made
        function = maker(configuration, secure).execute
    if not callables.parameters(function, "the function"):
        function = callables.ignoring_context(function)
    return function, callables.is_async(function)


def _check_body(made: Any, what: str) -> None:
    """Refuse what cannot be called with the context, or without arguments; a class is made when it
    is needed."""
    if not inspect.isclass(made):
        callables.check(made, what)
        if callables.parameters(made, what):
            callables.check(made, what, "ctx")
    elif (execute := getattr(made, "execute", None)) is None:
        raise InvalidValue(f"{what} is a function or a class with execute(ctx), not {made!r}")
    else:
        callables.check(execute, what)
