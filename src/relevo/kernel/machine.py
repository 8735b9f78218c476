"""State machines as tables of transitions.

    DOOR = Machine(
        "door",
        initial="closed",
        transitions=[
            Transition("closed", "open", "opened"),
            Transition("opened", "close", "closed"),
        ],
    )
    DOOR.next("closed", "open")  # "opened"

Code asks the table instead of comparing states, and the diagrams of the documentation are drawn
from it, so neither can know a transition that the other does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.errors import Conflict, InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

END = "[*]"
"""The state of a deleted object; it has no transitions."""


class Transition(Struct, frozen=True):
    """In state `from_`, `event` leads to `to`; `note` is what a diagram says instead of `event`."""

    from_: str
    event: str
    to: str
    note: str = ""


class Machine:
    """A table of transitions: at most one for a state and an event.

    `name` is the thing whose states these are, as messages call it. `error` is what is raised for
    an event that the table does not have, where a part has a narrower one than `Conflict`.
    """

    def __init__(
        self,
        name: str,
        *,
        initial: str,
        transitions: Sequence[Transition],
        error: type[Conflict] = Conflict,
    ) -> None:
        self.name = name
        self._error = error
        self.initial = initial
        self.transitions = tuple(transitions)
        self._next = {
            (transition.from_, transition.event): transition.to for transition in self.transitions
        }
        if len(self._next) < len(self.transitions):
            raise InvalidValue(f"two transitions of a {name} have the same state and event")
        if lost := set(self.states) - self._reachable():
            raise InvalidValue(f"no transition leads a {name} to {', '.join(sorted(lost))}")

    @property
    def states(self) -> tuple[str, ...]:
        """Every state, in the order in which the table names them."""
        ends = (
            state for transition in self.transitions for state in (transition.from_, transition.to)
        )
        return tuple(dict.fromkeys(state for state in (self.initial, *ends) if state != END))

    @property
    def events(self) -> tuple[str, ...]:
        """Every event, in the order of the table."""
        return tuple(dict.fromkeys(transition.event for transition in self.transitions))

    def may(self, state: str, event: str) -> bool:
        """Whether the event can happen in that state."""
        return (state, event) in self._next

    def next(self, state: str, event: str) -> str:
        """Return the state after an event; raise `Conflict` if the table does not have it."""
        try:
            return self._next[state, event]
        except KeyError:
            raise self._error(
                f"a {self.name} that is {state!r} cannot {event!r}; {self._possible(state)}"
            ) from None

    def sources(self, event: str) -> tuple[str, ...]:
        """Return the states in which the event can happen."""
        return tuple(
            transition.from_ for transition in self.transitions if transition.event == event
        )

    def mermaid(self) -> str:
        """Return the table as a Mermaid state diagram, with a final newline."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [
            f"    {transition.from_} --> {transition.to}: {transition.note or transition.event}"
            for transition in self.transitions
        ]
        return "\n".join(lines) + "\n"

    def _possible(self, state: str) -> str:
        known = [event for at, event in self._next if at == state]
        if known:
            return f"there it can {', '.join(known)}"
        if state in self.states:
            return "nothing can happen to it any more"
        return f"its states are {', '.join(self.states)}"

    def _reachable(self) -> set[str]:
        found, new = set(), {self.initial}
        while new:
            found |= new
            new = {
                transition.to for transition in self.transitions if transition.from_ in new
            } - found
        return found
