"""Links of a query in SQL: joins, the first of related rows, and tests whether there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from relevo.kernel.querying.errors import InvalidQuery
from relevo.kernel.querying.frames import Joined, QueryFrame, matching
from relevo.kernel.querying.model import CONDITIONAL, JOINED, all_links
from relevo.kernel.querying.sorting import column_key, order_by, row_key
from relevo.kernel.querying.statements import select

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.kernel.querying.model import Link

_JOINS: Final = {"inner": "join", "outer": "left join", "first": "join"}


def attach(frame: QueryFrame, links: tuple[Link, ...], registry: dict[str, QueryFrame]) -> None:
    """Hang links on a frame; `registry` gets the joined ones, of all levels, by alias."""
    for link in links:
        if link.kind in CONDITIONAL:
            frame.tests[link.alias] = _test(frame, link)
        elif link.kind in JOINED:
            _join(frame, link, registry)
        else:
            for one in all_links((link,)):
                _showing_nothing(one)
            frame.conditions.append(_exists(frame, link))


def _join(frame: QueryFrame, link: Link, registry: dict[str, QueryFrame]) -> None:
    if link.alias in registry:
        raise InvalidQuery(f"Two links have the alias `{link.alias[:64]}`; give one another.")
    context, table = frame.context, frame.context.table(link.table)
    if link.kind == "first":
        alias = context.alias()
        child = QueryFrame(context, table, alias, _first(frame, link, alias))
        attach(child, tuple(one for one in link.links if one.kind in JOINED), registry)
    else:
        child = _related(frame, link, registry)
    registry[link.alias] = child
    frame.joined.append(Joined(_JOINS[link.kind], child, child.where()))


def _related(frame: QueryFrame, link: Link, registry: dict[str, QueryFrame]) -> QueryFrame:
    """A frame of the rows that belong to those of `frame` and fulfil the link's filter."""
    child = QueryFrame.of(frame.context, frame.context.table(link.table), link.filter)
    child.conditions.append(
        matching(frame, frame.column(link.parent_column), child, child.column(link.column))
    )
    attach(child, link.links, registry)
    child.links = {link.alias: child}
    child.add(link.filter)
    return child


def _first(frame: QueryFrame, link: Link, alias: str) -> str:
    """One related row, the first by the link's orders; what is joined to it is joined outside."""
    tests = tuple(one for one in link.links if one.kind not in JOINED)
    inner = _related(frame, replace(link, links=tests), {})
    order = order_by([*(column_key(inner, one, inner) for one in link.orders), row_key(inner)])
    rows = select(f"{inner.alias}.*", inner.sql(), where=inner.where(), order_by=order, limit="1")
    return f"lateral ({rows}) as {alias}"


def _exists(frame: QueryFrame, link: Link) -> str:
    child = _related(frame, link, {})
    return f"exists ({select('1', child.sql(), where=child.where())})"


def _test(frame: QueryFrame, link: Link) -> Callable[[], str]:
    """A link inside a filter, built where the filter names it.

    `all` is upstream's: there are related rows, and none of them fulfils the filter.
    """
    for one in all_links((link,)):
        _showing_nothing(one)

    def sql() -> str:
        found = _exists(frame, link)
        match link.kind:
            case "not any":
                return f"(not {found})"
            case "all":
                some = _exists(frame, replace(link, filter=None, links=()))
                return f"({some} and not {found})"
            case _:
                return found

    return sql


def _showing_nothing(link: Link) -> None:
    if link.items or link.orders:
        raise InvalidQuery(
            f"The link `{link.alias[:64]}` only tests for rows, so it has no columns and no order; "
            "drop them, or make it an inner link."
        )
