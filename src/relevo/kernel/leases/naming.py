"""Names and labels of hosts and units: given by users, so checked."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING

from relevo import limits
from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping


def default_host_name() -> str:
    """Machine, process and a random part: unique without being asked."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels of a host; refuse too many and too long ones."""
    if len(labels) > limits.LABELS_MAX:
        raise InvalidValue(f"a host has at most {limits.LABELS_MAX} labels, not {len(labels)}")
    for name, value in labels.items():
        if max(len(name.encode()), len(value.encode())) > limits.LABEL_BYTES_MAX:
            raise InvalidValue(
                f"the label {name[:40]!r} is too long; names and values have at most"
                f" {limits.LABEL_BYTES_MAX} bytes"
            )
    return dict(labels)


def checked_name(name: str) -> str:
    """Return the name of a host or unit; refuse one that cannot be shown or is too long."""
    if not name or len(name) > limits.NAME_LENGTH_MAX or not name.isprintable():
        raise InvalidValue(
            f"the name {name[:40]!r} must have 1 to {limits.NAME_LENGTH_MAX} printable characters"
        )
    return name
