"""Paths of OData: through single-valued navigations to a column."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, cast

from lark import Token, Tree
from msgspec import Struct

from relevo.kernel.querying.catalogue import Column, Table
from relevo.kernel.querying.errors import UNKNOWN_COLUMN
from relevo.kernel.querying.model import Path, column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.errors import InvalidQuery
    from relevo.kernel.expressions.tree import Expression
    from relevo.kernel.querying.catalogue import Catalogue, Navigation
    from relevo.kernel.querying.odata.grammar import SourcePlace

_STEPS_MAX: Final = 3


class ResolvedPath(Struct, frozen=True):
    """A column that a path leads to."""

    path: Path
    table: Table
    column: Column

    @property
    def node(self) -> Expression:
        """The node that stands for it."""
        return column(*self.path)


def names_of(found: Tree[Token]) -> list[str]:
    """Return the names of a path, in order."""
    names: list[str] = []
    while True:
        *deeper, last = found.children
        names.append(str(last))
        if not deeper:
            return names[::-1]
        found = cast(Tree[Token], deeper[0])


def find(
    names: Sequence[str],
    table: Table,
    catalogue: Catalogue,
    where: Tree[Token] | Token,
    place: SourcePlace,
    *,
    logical: bool = False,
) -> ResolvedPath:
    """Return the column that names lead to; with `logical` the last may be a logical name."""
    *way, last = names
    if len(way) >= _STEPS_MAX:
        raise place.at(where, f"a path has at most {_STEPS_MAX} parts. Shorten it.")
    for step in way:
        navigation = table.navigation_by_name.get(step)
        if navigation is None or navigation.collection:
            what = f"`{table.name}` has no single-valued navigation `{step[:64]}`"
            raise place.at(where, f"{what}. Check its name.", UNKNOWN_COLUMN)
        table = behind(navigation, catalogue, where, place)
    known = table.by_wire.get(last) or (table.by_name.get(last) if logical else None)
    if known is None:
        raise unknown_column(table, last, where, place)
    return ResolvedPath((*way, known.name), table, known)


def behind(
    navigation: Navigation, catalogue: Catalogue, where: Tree[Token] | Token, place: SourcePlace
) -> Table:
    """Return the table that a navigation leads to."""
    found = catalogue.by_name.get(navigation.table)
    if found is None:
        what = f"`{navigation.name}` leads to `{navigation.table}`, which is not served here"
        raise place.at(where, f"{what}. Leave it out.", UNKNOWN_COLUMN)
    return found


def unknown_column(
    table: Table, name: str, where: Tree[Token] | Token, place: SourcePlace
) -> InvalidQuery:
    """Return the error for a name that no column has, with those that are like it."""
    if name in table.by_name:
        close = [table.by_name[name].wire]
    else:
        close = difflib.get_close_matches(name[:64], list(table.by_wire), n=3)
    advice = f"Write {' or '.join(close)}." if close else "Check its name."
    what = f"`{table.name}` has no property `{name[:64]}`. {advice}"
    return place.at(where, what, UNKNOWN_COLUMN)
