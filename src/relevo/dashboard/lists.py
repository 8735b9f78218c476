"""Pages made of lists and facts, declared as data: each section shows what one operation returns.

Section(name="hosts", operation="hosts.list", columns=(Column("name"), Column("live", "flag")),
        thing=("name",), actions=("hosts.drain",))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct

from relevo.dashboard import charts
from relevo.dashboard.languages import NONE
from relevo.dashboard.page import Page, message_of
from relevo.errors import CallerError, NotFound
from relevo.http.operations import operation
from relevo.kernel.operation import Versioned

if TYPE_CHECKING:
    from relevo.dashboard.charts import Chart, ChartOf
    from relevo.dashboard.page import Visit

Kind = Literal["text", "number", "seconds", "time", "status", "flag", "json", "share", "says"]
"""How a value is shown; `share` is a number from 0 to 1 as a bar, `says` a sentence."""
Rows = Callable[[Any], Sequence[Any]]
Link = str | Callable[[Any], str]
ROWS: Final = 50
LANGUAGE: Final = "@language"
"""As a field that a section gives: the language of the visitor."""
DURATIONS: Final = (600, 3_600, 4 * 3_600, 86_400, 7 * 86_400)
"""Seconds from now that forms offer."""


class Column(Struct, frozen=True):
    """A value of each row, and the page it leads to: a path with fields of the row in braces."""

    field: str
    kind: Kind = "text"
    link: Link = ""


class Input(Struct, frozen=True):
    """A value that a form asks for; `duration` is a choice of times from now."""

    field: str
    kind: Literal["text", "number", "duration", "json", "choice", "several"] = "text"
    required: bool = True
    choices: tuple[str, ...] = ()


class Form(Struct, frozen=True):
    """An action that needs values, on the thing that a page is about."""

    operation: str
    thing: tuple[str, ...] = ()
    """The parameters of the page that name the thing."""
    inputs: tuple[Input, ...] = ()


def items_of(answer: Any) -> Sequence[Any]:
    """Return the rows of an answer that is one page of a list."""
    found: Sequence[Any] = answer.items
    return found


class Section(Struct, frozen=True, kw_only=True):
    """A table of what an operation lists, or facts about one thing."""

    name: str
    """Its heading is the text `lists.<name>`."""
    operation: str
    columns: tuple[Column, ...]
    given: Mapping[str, str] = {}
    """Fields of the operation: a parameter of the page's path in braces, a field of its query after
    a question mark, or a value."""
    rows: Rows = items_of
    facts: bool = False
    """Whether the answer itself is the one row, shown as facts."""
    paged: bool = True
    """Whether the operation takes a cursor and a limit."""
    thing: tuple[str, ...] = ()
    """The fields of a row that name it for actions."""
    key: tuple[str, ...] = ()
    """The fields that tell a row from all others, where `thing` does not."""
    actions: tuple[str, ...] = ()
    acts_on: str = ""
    """The field that is true of rows that have actions; empty if all have."""
    empty: str = ""
    """The command that makes the first row."""
    matrix: tuple[str, str, str] | None = None
    """Shows the rows as a heat map instead: the fields of its lines, its columns and its values."""


class Cell(Struct, frozen=True):
    """A value with how it is shown."""

    field: str
    kind: Kind
    value: Any
    href: str = ""


class Row(Struct, frozen=True):
    """A row, and the name by which actions know it."""

    cells: tuple[Cell, ...]
    thing: str
    key: str


class Matrix(Struct, frozen=True):
    """A heat map: values by line and column, each with its heat from 0 to 5."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[tuple[float, int], ...]], ...]


class Shown(Struct, frozen=True, kw_only=True):
    """A section with its rows."""

    section: Section
    rows: tuple[Row, ...] = ()
    next: str | None = None
    problem: str = ""
    matrix: Matrix | None = None


class ListPage:
    """Loads a page of sections; those that a visitor may not see are left out."""

    def __init__(
        self,
        *sections: Section,
        forms: tuple[Form, ...] = (),
        charts: tuple[ChartOf, ...] = (),
    ) -> None:
        self.sections = sections
        self.forms = forms
        self.charts = charts

    async def __call__(self, visit: Visit) -> dict[str, Any]:
        """Return the variables of the page's template."""
        answers: dict[Any, Any] = {}
        seen = [section for section in self.sections if visit.may(section.operation)]
        return {
            "sections": [await _shown(visit, section, answers) for section in seen],
            "forms": [(form, thing_of(visit.parameters, form.thing)) for form in self.forms],
            "durations": DURATIONS,
            "charts": await self._drawn(visit),
        }

    async def _drawn(self, visit: Visit) -> list[Chart]:
        """Return the charts of the last hour."""
        if not self.charts or not visit.may("history.read"):
            return []
        lines = charts.series(await visit.run("history.read"))
        return [charts.chart(lines, each) for each in self.charts]


def list_page(
    name: str, path: str, *sections: Section, forms: tuple[Form, ...] = (),
    charts: tuple[ChartOf, ...] = (), group: str | None = None, under: str | None = None,
) -> Page:  # fmt: skip
    """Return a page of sections; whoever may see the first of them may see the page."""
    return Page(
        name=name, path=path, area="lists", template="lists/page.html", group=group, under=under,
        operation=sections[0].operation, load=ListPage(*sections, forms=forms, charts=charts),
    )  # fmt: skip


async def _shown(visit: Visit, section: Section, answers: dict[Any, Any]) -> Shown:
    fields: dict[str, Any] = {name: _given(visit, each) for name, each in section.given.items()}
    if section.paged and not section.facts:
        after = visit.one(f"after_{section.name}")
        fields |= {_named(section, "limit"): ROWS, _named(section, "cursor"): after}
    key = (section.operation, *sorted(fields.items()))
    try:
        if key not in answers:
            answer = await visit.run(section.operation, **fields)
            answers[key] = answer.body if isinstance(answer, Versioned) else answer
        answer = answers[key]
    except CallerError as error:
        if section.facts and error.status == NotFound.status:
            raise
        return Shown(section=section, problem=message_of(error))
    rows = [answer] if section.facts else section.rows(answer)
    return Shown(
        section=section,
        rows=tuple(_row(visit, section, row) for row in rows),
        next=answer.next if section.paged and not section.facts else None,
        matrix=None if section.matrix is None else matrix_of(rows, section.matrix),
    )


def matrix_of(rows: Sequence[Any], fields: tuple[str, str, str]) -> Matrix:
    """Return rows as a heat map; the greatest value is the hottest.

    >>> matrix_of([{"a": "x", "b": "y", "n": 4}], ("a", "b", "n")).lines
    (('x', ((4, 5),)),)
    """
    values: dict[tuple[str, str], float] = {}
    for row in rows:
        line, column, value = (value_of(row, field) for field in fields)
        values[str(line or NONE), str(column or NONE)] = value or 0
    hottest = max(values.values(), default=0) or 1
    columns = tuple(dict.fromkeys(column for _, column in values))
    lines = tuple(dict.fromkeys(line for line, _ in values))
    cells = {
        line: tuple(
            (value, ceil(5 * value / hottest))
            for value in (values.get((line, column), 0) for column in columns)
        )
        for line in lines
    }
    return Matrix(columns, tuple(cells.items()))


def _given(visit: Visit, value: str) -> str:
    if value == LANGUAGE:
        return visit.language.code
    if value.startswith("?"):
        return visit.one(value[1:])
    return value.format_map(visit.parameters)


def _named(section: Section, field: str) -> str:
    """Return the name on the wire of a field that every list has."""
    fields = msgspec.structs.fields(operation(section.operation).request)
    return next(each.encode_name for each in fields if each.name == field)


def _row(visit: Visit, section: Section, row: Any) -> Row:
    quoted = _Quoted(row, visit.parameters)
    cells = tuple(
        Cell(
            column.field, column.kind, value_of(row, column.field),
            column.link(row) if callable(column.link) else column.link.format_map(quoted),
        )
        for column in section.columns
    )  # fmt: skip
    acted_on = not section.acts_on or value_of(row, section.acts_on)
    return Row(
        cells,
        thing=_name_of(visit, row, section.thing) if acted_on else "",
        key=_name_of(visit, row, section.key or section.thing),
    )


def _name_of(visit: Visit, row: Any, fields: tuple[str, ...]) -> str:
    """Return the name of a row; fields in braces are those of the page's path."""
    named = {
        name: visit.parameters[name[1:-1]] if name.startswith("{") else value_of(row, name)
        for name in fields
    }
    return thing_of(named, fields)


def thing_of(values: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return the name of a thing for actions: its fields, percent-encoded, between slashes.

    >>> thing_of({"kind": "feed", "unit": "a/b"}, ("kind", "unit"))
    'feed/a%2Fb'
    """
    return "/".join(quote(str(values[name]), safe="") for name in fields)


def value_of(row: Any, field: str) -> Any:
    """Return a field of a row, or of what it holds: `messages.active`; None if there is none.

    >>> value_of({"a": {"b": 1}}, "a.b"), value_of({"a": None}, "a.b")
    (1, None)
    """
    for name in field.split("."):
        row = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
        if row is None or row is UNSET:
            return None
    return row


class _Quoted(dict[str, str]):
    """The fields of a row for a path, each percent-encoded; what it lacks has the page's path."""

    def __init__(self, row: Any, parameters: Mapping[str, str]) -> None:
        super().__init__()
        self._row = row
        self._parameters = parameters

    def __missing__(self, name: str) -> str:
        value = value_of(self._row, name)
        return quote(str(self._parameters.get(name) if value is None else value), safe="")
