"""The front end for FetchXML: a document becomes a query.

    parse(text, catalogue, table="asyncoperation", caller=caller, now=now, key=key)

What is in the document only ever chooses from the catalogue or becomes a value. What cannot
be read, or is not served, raises `InvalidQuery` with its code and the line it stands in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.kernel.expressions.tree import Expression, Logic, LogicOperator
from relevo.kernel.querying.catalogue import are_tied
from relevo.kernel.querying.errors import ENTITY, IMPOSSIBLE
from relevo.kernel.querying.fetchxml import elements as fetch_elements
from relevo.kernel.querying.fetchxml import paging as fetch_paging
from relevo.kernel.querying.fetchxml.conditions import Asker, FetchScope, condition
from relevo.kernel.querying.fetchxml.items import FetchItems, claim
from relevo.kernel.querying.model import (
    CONDITIONAL,
    JOINED,
    RULES,
    Caller,
    Link,
    LinkKind,
    Query,
    related,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from relevo.kernel.querying.catalogue import Catalogue, Table
    from relevo.kernel.querying.fetchxml.elements import Element

LINK_TYPES: Final[dict[str, LinkKind]] = {
    "inner": "inner",
    "outer": "outer",
    "exists": "exists",
    "in": "in",
    "matchfirstrowusingcrossapply": "first",
}
CONDITIONAL_TYPES: Final[dict[str, LinkKind]] = {kind: kind for kind in sorted(CONDITIONAL)}
"""Those of links inside filters."""
FILTER_TYPES: Final[dict[str, LogicOperator]] = {"and": "and", "or": "or"}


def parse(
    text: str,
    catalogue: Catalogue,
    *,
    table: str,
    caller: Caller,
    now: datetime,
    key: bytes,
    page_size: int | None = None,
) -> Query:
    """Return the query of a document on a table, by its logical name.

    `caller` and `now` (with a time zone) are what operators such as `eq-userid` and `today` mean;
    `key` is the one that paging cookies are signed under, and `page_size` holds without `count`.
    """
    root = fetch_elements.read(text)
    mark = fetch_paging.fingerprint(root, caller)
    query = _FetchBuilder(root, catalogue, table, Asker(caller, now)).query()
    return fetch_paging.paged(query, root, mark, key, page_size)


class _FetchBuilder:
    """Makes the parts of a query from elements; one for each document."""

    def __init__(self, root: Element, catalogue: Catalogue, table: str, asker: Asker) -> None:
        if len(root.children) != 1:
            raise root.refused(
                IMPOSSIBLE, f"<fetch> has one <entity>, not {len(root.children)}. Keep one."
            )
        self.root = root
        self.catalogue = catalogue
        self.asker = asker
        _name_links(root)
        (self.entity,) = root.children
        self.table = self.find(self.entity)
        if self.table.name != table:
            raise self.entity.refused(
                ENTITY, f"the query is of {self.table.name} and was sent to {table}. Send it there."
            )
        self.items = FetchItems(root, self.table)

    def find(self, element: Element) -> Table:
        name = element.needs("name")
        if name not in self.catalogue.by_name:
            raise element.refused(ENTITY, f"there is no table `{name[:64]}`. Check its name.")
        return self.catalogue.by_name[name]

    def query(self) -> Query:
        root, entity = self.root, self.entity
        root.flag("no-lock")
        scope = FetchScope(self.table, dict(self.joined(entity)))
        return Query(
            table=self.table.name,
            items=self.items.shown(entity, self.table),
            filter=self.filter(entity, scope),
            orders=self.items.orders(entity, scope),
            links=self.links(entity, self.table, visible=True),
            count=root.flag("returntotalrecordcount"),
            distinct=root.flag("distinct"),
            aggregate=self.items.aggregate,
            aggregate_limit=root.whole("aggregatelimit", limits.QUERY_AGGREGATE_ROWS_MAX),
        )

    def joined(self, element: Element) -> Iterator[tuple[str, Table]]:
        """The linked tables whose columns the query's own filters and orders can name."""
        for child in element.every("link-entity"):
            if child.choice("link-type", LINK_TYPES, "inner") in JOINED:
                yield child.attributes["alias"], self.find(child)
                yield from self.joined(child)

    def links(self, element: Element, parent: Table, *, visible: bool) -> tuple[Link, ...]:
        """Links that stand beside the attributes, then those inside filters."""
        return (
            *(
                self.link(one, parent, one.choice("link-type", LINK_TYPES, "inner"), visible)
                for one in element.every("link-entity")
            ),
            *(
                self.link(
                    one, parent, one.choice("link-type", CONDITIONAL_TYPES, ""), visible=False
                )
                for one in _inside_filters(element)
            ),
        )

    def link(self, element: Element, parent: Table, kind: LinkKind, visible: bool) -> Link:
        table = self.find(element)
        visible = visible and kind in JOINED
        shown = element.every("attribute", "all-attributes", "order")
        if shown and not visible:
            raise shown[0].refused(
                IMPOSSIBLE,
                f"rows of {table.name} are only tested for here, so <{shown[0].name}> has nothing "
                "to show or sort. Drop it.",
            )
        element.flag("intersect")
        alias = element.attributes["alias"]
        scope = FetchScope(table, {alias: table})
        own, other = self.ends(element, table, parent)
        return Link(
            table=table.name,
            alias=alias,
            column=own,
            parent_column=other,
            kind=kind,
            items=self.items.shown(element, table),
            filter=self.filter(element, scope),
            orders=self.items.orders(element, scope),
            links=self.links(element, table, visible=visible),
        )

    def ends(self, element: Element, table: Table, parent: Table) -> tuple[str, str]:
        """The columns that tie linked rows to their parent's."""
        own, other = element.needs("from"), element.needs("to")
        a = FetchScope(table).column(FetchScope(table).path(element, own))
        b = FetchScope(parent).column(FetchScope(parent).path(element, other))
        if not are_tied(table, a, parent, b):
            raise element.refused(
                IMPOSSIBLE,
                f"{own} of {table.name} and {other} of {parent.name} are no relationship. Link a "
                f"lookup or an id to a key: {table.key} of {table.name} or {parent.key} of "
                f"{parent.name}.",
            )
        return own, other

    def filter(self, element: Element, scope: FetchScope) -> Expression | None:
        """The conjunction of all filters of an element."""
        return self.logic("and", element.every("filter"), scope)

    def logic(
        self, operator: LogicOperator, elements: list[Element], scope: FetchScope
    ) -> Expression | None:
        found = [self.term(element, scope) for element in elements]
        terms = tuple(term for term in found if term is not None)
        return Logic(operator, terms, RULES) if len(terms) > 1 else next(iter(terms), None)

    def term(self, element: Element, scope: FetchScope) -> Expression | None:
        match element.name:
            case "condition":
                return condition(element, scope, self.asker)
            case "link-entity":
                return related(element.attributes["alias"])
            case _:
                operator = element.choice("type", FILTER_TYPES, "and")
                return self.logic(operator, element.children, scope)


def _inside_filters(element: Element) -> Iterator[Element]:
    """The links that stand in the filters of an element."""
    for child in element.every("filter"):
        yield from child.every("link-entity")
        yield from _inside_filters(child)


def _name_links(root: Element) -> None:
    """Give every link an alias: its own, or the name of its table and its place among all links."""
    links = list(_every_link(root))
    for number, link in enumerate(links, 1):
        link.attributes.setdefault("alias", f"{link.needs('name')}{number}")
    seen: set[str] = set()
    for link in links:
        claim(link, link.attributes["alias"], seen)


def _every_link(element: Element) -> Iterator[Element]:
    for child in element.children:
        if child.name == "link-entity":
            yield child
        yield from _every_link(child)
