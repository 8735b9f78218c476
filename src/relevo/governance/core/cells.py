"""Text that other programs read: cells of CSV files, and names of files made from keys."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final

FILE_NAME_BYTES_MAX: Final = 120
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_.-]")


def csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs: text that looks like a formula gets an apostrophe."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def file_name(key: str) -> str:
    """Return a file name for a key: different for each key, and never outside of its folder."""
    raw = key.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode()
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) <= FILE_NAME_BYTES_MAX and name:
        return name
    return f"{name[:60]}~{blake2b(raw, digest_size=16).hexdigest()}"
