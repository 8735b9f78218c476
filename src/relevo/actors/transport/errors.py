"""What can go wrong between two processes of an installation."""

from __future__ import annotations

from typing import Literal

from relevo.errors import SystemFault, Unavailable

RefusalReason = Literal[
    "protocol", "cluster", "role", "incarnation", "key", "address", "busy", "unexpected"
]


class NotSent(Unavailable):
    """Nothing of the call was written to a peer, so it has not run: it may be sent again."""

    code = "not_sent"


class PeerRefused(NotSent):
    """Two processes do not talk to each other; `reason` says why in one word."""

    code = "peer_refused"

    def __init__(self, message: str, *, reason: RefusalReason) -> None:
        super().__init__(message)
        self.reason: RefusalReason = reason


class BadFrame(SystemFault):
    """A peer sent bytes that are no frame, or one that breaks a bound; its connection is closed."""

    code = "bad_frame"
