"""A call of an actor and its answer, as values that can travel between hosts.

Bodies are MessagePack that only the two ends of a call decode. Everything here is an array on the
wire, so fields are added at the end, with defaults.
"""

from __future__ import annotations

from msgspec import Struct


class Frame(Struct, frozen=True, array_like=True):
    """A turn that waits for a call it made."""

    actor: str
    """Canonical id."""
    turn: int
    """Random number of the turn."""


class Chain(Struct, frozen=True, array_like=True):
    """The calls that descend from one outside request: its number, and the turns that wait."""

    id: int
    frames: tuple[Frame, ...] = ()

    def with_turn(self, actor: str, turn: int) -> Chain:
        """Return the chain of the calls that a turn makes."""
        return Chain(self.id, (*self.frames, Frame(actor, turn)))

    @property
    def depth(self) -> int:
        """How many turns wait."""
        return len(self.frames)


class Call(Struct, array_like=True, gc=False):
    """A request to run a method of an actor."""

    actor: str
    """Canonical id; its type says whether it has an identity or is stateless."""
    method: str
    body: bytes
    """The arguments in the order of the signature, as a MessagePack array."""
    timeout: float
    """Seconds that remain, counted anew at each hop."""
    chain: Chain
    epoch: int = 0
    """The epoch of the slot as the caller knows it; 0 if unknown."""
    digest: str = ""
    """Of the method's signature, as the caller knows it."""
    call_id: str | None = None
    headers: dict[str, str] = {}
    one_way: bool = False
    """The caller waits until the call is admitted, not for its answer."""
    made_at: float = 0.0
    """Wall time of the caller, to choose the last call made of a cycle."""
    is_json: bool = False
    """The body is a JSON object of the arguments by name, and the result is JSON, too."""


class Returned(Struct, frozen=True, array_like=True, tag="returned", gc=False):
    """The method returned; the body is its result."""

    body: bytes
    epoch: int = 0


class Raised(Struct, frozen=True, array_like=True, tag="raised", gc=False):
    """The method raised an error that it declares; the body holds the error's fields."""

    name: str
    body: bytes
    message: str
    epoch: int = 0


class Refused(Struct, frozen=True, array_like=True, tag="refused", gc=False):
    """The call failed with an error of Relevo, or of a method that did not declare it."""

    code: str
    """`code` of the error's class."""
    message: str
    executed: bool | None
    """False: it did not run. True: it ran, without effect on the state. None: not known."""
    retry_after: float = 0.0
    type_name: str = ""
    """Class of an undeclared error."""
    error_id: str = ""
    trace: str = ""
    epoch: int = 0


class MovedTo(Struct, frozen=True, array_like=True, tag="moved", gc=False):
    """The call did not run: this host does not own the slot."""

    epoch: int
    """The highest epoch of the slot that the host knows."""
    address: str | None = None
    """Where the owner takes calls, if the host knows."""
    pause: float = 0.0
    """Seconds to wait before looking again: the slot is being handed over."""
    in_order_from: int | None = None
    """As of a `Route`."""


Answer = Returned | Raised | Refused | MovedTo
