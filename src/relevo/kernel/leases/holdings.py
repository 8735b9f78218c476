"""Compares a host's own view of its leases with the database's. Pure.

The store's answer is a snapshot taken some time after the question was sent; meanwhile the host may
have taken or given up leases itself. `then` is what it believed when it asked, `now` what it
believes when it reads the answer; only where both agree can an answer prove a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.kernel.leases.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Owned(Struct, frozen=True):
    """A lease that this host owns, by the database."""

    id: int
    epoch: int
    state: LeaseState = "active"
    handoff: bool = False
    handoff_left: float | None = None
    """Seconds until the hand-off must be done."""


class Changes(Struct, frozen=True, kw_only=True):
    """The consequences for the host; ids of leases."""

    gained: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    rewound: tuple[int, ...] = ()
    """Those of the lost ones that are still this host's, one epoch on: an operator has moved their
    positions. Whatever changes the owner and gives it back takes two epochs."""
    asked: tuple[Owned, ...] = ()
    """To be let go: a hand-off was requested, or the lease was paused or blocked."""
    recalled: tuple[int, ...] = ()
    """Held and not requested any more: an earlier request to hand over is withdrawn."""


def compare(now: Mapping[int, int], then: Mapping[int, int], owned: Iterable[Owned]) -> Changes:
    """Return the differences; `now` and `then` map lease ids to epochs."""
    gained, lost, rewound, asked, recalled = [], [], [], [], []
    seen = set()
    for lease in owned:
        seen.add(lease.id)
        mine = now.get(lease.id)
        if mine is None:
            if then.get(lease.id) != lease.epoch:  # else: given up since the question was sent
                gained.append(lease.id)
        elif lease.epoch > mine:
            lost.append(lease.id)
            gained.append(lease.id)
            if lease.epoch == mine + 1:
                rewound.append(lease.id)
        elif lease.epoch == mine:
            if lease.handoff or lease.state != "active":
                asked.append(lease)
            else:
                recalled.append(lease.id)
    lost.extend(one for one, epoch in then.items() if one not in seen and now.get(one) == epoch)
    return Changes(
        gained=tuple(gained), lost=tuple(lost), rewound=tuple(rewound), asked=tuple(asked),
        recalled=tuple(recalled),
    )  # fmt: skip
