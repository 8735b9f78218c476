"""Preferences of a client about an answer: the header `Prefer`."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from relevo import limits

_PART: Final = re.compile(r'(?:[^",]|"[^"]*")+')


class Preferences(Struct, frozen=True, kw_only=True):
    """Those that are known; others are ignored, as the protocol wants it."""

    page_size: int | None = None
    """`odata.maxpagesize`, at most the largest page."""
    annotations: tuple[str, ...] = ()
    """Patterns of `odata.include-annotations`: `*`, a name, or the start of names and `.*`."""
    representation: bool | None = None
    """`return=representation`, or `return=minimal`."""
    respond_async: bool = False

    def wants(self, annotation: str) -> bool:
        """Whether an annotation, named without its `@`, is wanted."""
        return any(_matches(pattern, annotation) for pattern in self.annotations)

    def applied(self) -> str | None:
        """Return the value of `Preference-Applied` for a page; None if there is nothing to say."""
        parts = []
        if self.page_size is not None:
            parts.append(f"odata.maxpagesize={self.page_size}")
        if self.annotations:
            parts.append(f'odata.include-annotations="{",".join(self.annotations)}"')
        return ", ".join(parts) or None


def read(header: str | None) -> Preferences:
    """Return the preferences in a header; unreadable ones are ignored."""
    found: dict[str, str] = {}
    for part in _PART.findall(header or ""):
        name, _, rest = part.partition("=")
        value = rest.strip()
        quoted = value.startswith('"')
        text = value[1:].partition('"')[0] if quoted else value.partition(";")[0]
        found.setdefault(name.partition(";")[0].strip().lower(), text.strip())
    size = found.get("odata.maxpagesize", found.get("maxpagesize", ""))
    whole = size.isascii() and size.isdigit() and len(size) < 10 and int(size) > 0
    names = found.get("odata.include-annotations", found.get("include-annotations", ""))
    return Preferences(
        page_size=min(int(size), limits.QUERY_ROWS_MAX) if whole else None,
        annotations=tuple(filter(None, (one.strip() for one in names.split(",")))),
        representation={"representation": True, "minimal": False}.get(found.get("return", "")),
        respond_async="respond-async" in found,
    )


def _matches(pattern: str, annotation: str) -> bool:
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return annotation.startswith(pattern[:-1])
    return pattern == annotation
