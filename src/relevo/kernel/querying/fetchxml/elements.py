"""Reads the document of a FetchXML query into elements, within bounds and resolving nothing.

What is allowed where stands in `SCHEMA`. A document type, an entity, a reference to the outside or
a processing instruction ends the reading where it starts: nothing behind it is looked at.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar
from xml.parsers import expat

from msgspec import Struct

from relevo import limits
from relevo.kernel.querying.errors import (
    CONDITIONS,
    IMPOSSIBLE,
    LINKS,
    MALFORMED_XML,
    UNKNOWN_ELEMENT,
    InvalidQuery,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_MAX: Final = 32 * limits.KIB
DEPTH_MAX: Final = 10
LINKS_MAX: Final = 15

BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_IGNORED: Final = "version output-format mapping options latematerialize datasource hint visible"
IGNORED: Final = frozenset(_IGNORED.split())
"""Attributes that other servers know, and that change nothing here."""


class Kind(Struct, frozen=True):
    """The children and attributes of an element."""

    attributes: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()
    text: bool = False


def _kind(attributes: str = "", children: str = "", *, text: bool = False) -> Kind:
    return Kind(frozenset(attributes.split()), frozenset(children.split()), text)


_PARTS: Final = "all-attributes attribute order filter link-entity"
SCHEMA: Final[dict[str, Kind]] = {
    "fetch": _kind(
        "top count page paging-cookie distinct aggregate aggregatelimit returntotalrecordcount "
        "useraworderby no-lock",
        "entity",
    ),
    "entity": _kind("name", _PARTS),
    "link-entity": _kind("name from to alias link-type intersect", _PARTS),
    "all-attributes": _kind(),
    "attribute": _kind("name alias aggregate groupby distinct dategrouping usertimezone"),
    "order": _kind("attribute alias descending entityname"),
    "filter": _kind("type", "condition filter link-entity"),
    "condition": _kind("attribute operator value valueof entityname", "value"),
    "value": _kind(text=True),
}
Chosen = TypeVar("Chosen")

LIMITS: Final[dict[str, tuple[int, str, str]]] = {
    "condition": (limits.QUERY_CONDITIONS_MAX, CONDITIONS, "conditions; use `in`"),
    "value": (limits.QUERY_LIST_MAX, CONDITIONS, "values; split the query"),
    "link-entity": (LINKS_MAX, LINKS, "linked tables; split the query"),
}
"""The limit of an element in a document, with its error."""


class Element(Struct, frozen=True):
    """An element that stands where it may, with attributes that it may have."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = []
    texts: list[str] = []

    def every(self, *names: str) -> list[Element]:
        """Return the children of these names, in their order."""
        return [child for child in self.children if child.name in names]

    def needs(self, attribute: str) -> str:
        """Return an attribute that has to be there."""
        value = self.attributes.get(attribute)
        if value is None:
            raise self.refused(IMPOSSIBLE, f"<{self.name}> needs {attribute}; add it.")
        return value

    def choice(self, attribute: str, choices: Mapping[str, Chosen], default: str) -> Chosen:
        """Return the choice of an attribute."""
        value = self.attributes.get(attribute, default)
        if value not in choices:
            raise self.refused(
                IMPOSSIBLE,
                f"{attribute} is `{value[:64]}`; write {' or '.join(choices)}.",
            )
        return choices[value]

    def flag(self, attribute: str, *, default: bool = False) -> bool:
        """Return an attribute that is true or false."""
        return self.choice(attribute, BOOLEANS, "true" if default else "false")

    def whole(self, attribute: str, most: int) -> int | None:
        """Return an attribute that is a number from 1 to `most`; None if it is not there."""
        value = self.attributes.get(attribute)
        if value is None:
            return None
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
        if not 1 <= number <= most:
            raise self.refused(
                IMPOSSIBLE,
                f"{attribute} is `{value[:64]}`; write a whole number from 1 to {most}.",
            )
        return number

    def refused(self, code: str, message: str) -> InvalidQuery:
        """Return the error for something that is wrong with this element."""
        return refused(code, message, self.line)


def refused(code: str, message: str, line: int) -> InvalidQuery:
    """Return the error for a line of the document."""
    return InvalidQuery(f"The FetchXML is not valid at line {line}: {message}", dataverse=code)


def read(text: str) -> Element:
    """Return the root of a document, `<fetch>`; refuse anything else with its code."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise refused(MALFORMED_XML, "it is no proper Unicode; send it as UTF-8.", 1) from None
    if len(data) > BYTES_MAX:
        raise refused(
            IMPOSSIBLE,
            f"it has {len(data):,} bytes and may have {BYTES_MAX:,}; shorten it.",
            1,
        )
    return _Reader().read(data)


class _Reader:
    """Builds elements from events; what is counted is refused as soon as it is too much."""

    def __init__(self) -> None:
        parser = expat.ParserCreate("utf-8")  # whatever the document says about itself
        parser.buffer_text = True
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.characters
        parser.StartDoctypeDeclHandler = self.foreign
        parser.EntityDeclHandler = self.foreign
        parser.UnparsedEntityDeclHandler = self.foreign
        parser.NotationDeclHandler = self.foreign
        parser.ExternalEntityRefHandler = self.foreign
        parser.SkippedEntityHandler = self.foreign
        parser.ProcessingInstructionHandler = self.foreign
        self.parser = parser
        self.open: list[Element] = []
        self.counted: Counter[str] = Counter()
        self.root: Element | None = None

    def read(self, data: bytes) -> Element:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            why = expat.ErrorString(error.code)
            raise refused(
                MALFORMED_XML,
                f"{why} in column {error.offset + 1}. Correct it there, or just before.",
                error.lineno,
            ) from None
        assert self.root is not None
        return self.root

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.open) == DEPTH_MAX:
            raise refused(
                IMPOSSIBLE,
                f"it nests deeper than {DEPTH_MAX} elements; write it flatter.",
                self.line,
            )
        self.allow(name, attributes)
        self.count(name)
        kept = {key: value for key, value in attributes.items() if key not in IGNORED}
        element = Element(name, kept, self.line, [], [])
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def allow(self, name: str, attributes: dict[str, str]) -> None:
        parent = self.open[-1].name if self.open else ""
        if name not in (SCHEMA[parent].children if parent else {"fetch"}):
            where = f"in <{parent}>" if parent else "as the root; start with <fetch>"
            raise refused(
                UNKNOWN_ELEMENT, f"<{name[:64]}> is not known {where}. Drop it.", self.line
            )
        known = SCHEMA[name].attributes
        for key in attributes:
            if key not in known and key not in IGNORED:
                choice = ", ".join(sorted(known)) or "none"
                raise refused(
                    UNKNOWN_ELEMENT,
                    f"<{name}> has no attribute `{key[:64]}`. Use of these: {choice}.",
                    self.line,
                )

    def count(self, name: str) -> None:
        self.counted[name] += 1
        if name in LIMITS and self.counted[name] > LIMITS[name][0]:
            most, code, what = LIMITS[name]
            raise refused(code, f"it has more than {most:,} {what}.", self.line)

    def end(self, name: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        element = self.open[-1]
        if SCHEMA[element.name].text:
            element.texts.append(text)
        elif text.strip():
            raise refused(
                UNKNOWN_ELEMENT,
                f"the text `{text.strip()[:40]}` stands in <{element.name}>. Drop it.",
                self.line,
            )

    def foreign(self, *_: object) -> NoReturn:
        raise refused(
            MALFORMED_XML,
            "document types, entities and processing instructions are not read. Drop them.",
            self.line,
        )
