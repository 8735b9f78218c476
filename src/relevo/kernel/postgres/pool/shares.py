"""How the connections of a pool are divided among uses: one pure function of its size.

Some connections are kept for a use, or for several that never wait for each other; the rest float
and go to whoever asks first. A use that nobody has asked for yet keeps nothing. What may be held
for long (handlers, requests, the program) can never take what is kept for others, so a caller that
holds a connection and needs a second one always gets it:

- its statements have `inside`, its transactions `nested`, its grouped writes `groups`
- none of these shares with a use that waits for it

A pool of two connections has one beside that of the holder, which the three share; with three or
more, a transaction within a transaction can also run statements.
"""

from __future__ import annotations

from typing import Final, get_args

from msgspec import Struct

from relevo.kernel.uses import Kind

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_LINES: Final[tuple[tuple[tuple[Kind, ...], ...], ...]] = (
    (),
    (("inside", "nested", "groups"),),
    (("inside", "groups"), ("host", "nested")),
    (("inside",), ("groups",), ("host", "nested")),
    (("inside",), ("groups",), ("host",), ("nested",)),
    (("inside",), ("groups",), ("host",), ("nested",), ("program",)),
    (("inside",), ("groups",), ("host",), ("nested",), ("program",), ("requests",)),
    (("inside",), ("groups",), ("host",), ("nested",), ("program",), ("requests",), ("handlers",)),
)
"""Which uses share what is kept, by how many connections are kept in all."""
_ALWAYS: Final = frozenset({"inside", "nested", "groups"})
"""What holders of connections wait for: kept from the start, for then it would be too late."""
_KEPT_SHARE: Final = 0.4
"""Of a large pool; a small one keeps up to half, so that each of these uses has a connection."""
_QUERIES_SHARE: Final = 0.2
_KEY_SHARE: Final = 0.5


class Line(Struct, frozen=True):
    """Connections that are kept for some uses."""

    kinds: tuple[Kind, ...]
    kept: int
    always: bool
    """Whether they are kept before anybody has asked."""


class Shares(Struct, frozen=True):
    """What each use of a pool may take."""

    size: int
    lines: tuple[Line, ...]
    most: dict[Kind, int]
    """How many connections a use may have at a time."""
    key_most: dict[Kind, int]
    """How many of those one key may have."""


def shares(size: int) -> Shares:
    """Divide a pool of so many connections.

    >>> shares(10).most["handlers"], shares(10).most["queries"], shares(10).key_most["requests"]
    (4, 2, 2)
    """
    longest = len(_LINES) - 1
    kept = max(min(size - 1, 2), min(size // 2, longest), int(size * _KEPT_SHARE))
    lines = tuple(
        Line(
            kinds,
            kept // len(split) + (number < kept % len(split)),
            always=not _ALWAYS.isdisjoint(kinds),
        )
        for split in [_LINES[min(kept, longest)]]
        for number, kinds in enumerate(split)
    )
    floating = size - kept
    most: dict[Kind, int] = dict.fromkeys(_KINDS, size)
    for kind in ("handlers", "requests", "inside"):
        own = sum(line.kept for line in lines if line.kinds == (kind,))
        most[kind] = own + max(1, floating - 1)
    most["queries"] = max(1, int(size * _QUERIES_SHARE))
    keyed: tuple[Kind, ...] = ("requests", "queries")
    key_most = {kind: max(1, int(most[kind] * _KEY_SHARE)) for kind in keyed}
    return Shares(size, lines, most, key_most)
