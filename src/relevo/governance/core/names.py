"""Names of entities, partitions and resources, and names of files made from keys."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final

from relevo.errors import InvalidValue

NAME_BYTES_MAX: Final = 256
FILE_NAME_BYTES_MAX: Final = 120
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_.-]")


def checked_name(name: Any, what: str) -> str:
    """Return the name of an entity, a partition or a resource; raises `InvalidValue`."""
    if (
        not isinstance(name, str)
        or not 1 <= len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX
        or "\0" in name
    ):
        raise InvalidValue(
            f"the name of the {what} is {str(name)[:80]!r}; it must be text of 1 to"
            f" {NAME_BYTES_MAX} bytes, without the character NUL",
            pointer=what,
        )
    return name


def own_name(entity: str) -> str:
    """Return the name of the partition that an entity has for itself."""
    raw = entity.encode("utf-8", "surrogatepass")
    if len(raw) + 7 <= NAME_BYTES_MAX:
        return f"entity/{entity}"
    return f"entity/{entity[:50]}~{blake2b(raw, digest_size=16).hexdigest()}"


def file_name(key: str) -> str:
    """Return a file name for a key: different for each key, and never outside of its folder."""
    raw = key.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode()
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) <= FILE_NAME_BYTES_MAX and name:
        return name
    return f"{name[:60]}~{blake2b(raw, digest_size=16).hexdigest()}"
