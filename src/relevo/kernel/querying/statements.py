"""How the parts of a select statement are put together."""

from __future__ import annotations


def select(
    what: str,
    source: str,
    *,
    where: str | None = None,
    group_by: str | None = None,
    order_by: str | None = None,
    limit: str | None = None,
    offset: str | None = None,
) -> str:
    """Return a select statement; parts that are None or empty are left out."""
    parts = {
        "select": what,
        "from": source,
        "where": where,
        "group by": group_by,
        "order by": order_by,
        "limit": limit,
        "offset": offset,
    }
    return " ".join(f"{word} {part}" for word, part in parts.items() if part)
