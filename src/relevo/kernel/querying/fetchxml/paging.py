"""Pages of FetchXML queries: `page` and `count`, and the cookies that lead to the next page.

A client takes the cookie from the answer, decodes its inner value twice, and sends that as
`paging-cookie` with the number of the next page. Inside is a position as in `$skiptoken`: signed,
and bound to the document (whatever page it asks for) and to the caller.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from msgspec.structs import replace

from relevo import limits
from relevo.kernel.querying import tokens
from relevo.kernel.querying.errors import COOKIE_ORDER, IMPOSSIBLE, InvalidQuery
from relevo.kernel.querying.fetchxml import elements as fetch_elements
from relevo.kernel.querying.model import all_links

if TYPE_CHECKING:
    from relevo.kernel.querying.fetchxml.elements import Element
    from relevo.kernel.querying.model import Caller, Position, Query

PAGE_MAX: Final = 10**9 - 1
_PAGING: Final = frozenset({"page", "count", "paging-cookie"})
_VARYING: Final = _PAGING | {"returntotalrecordcount"}
"""Attributes that may differ from page to page."""
_ENCODED_MAX: Final = 2
_COOKIE: Final = re.compile(
    r"""\s*<cookie\s+page=["']([1-9][0-9]{0,7})["']\s*>\s*"""
    r"""<position\s+order=["']([0-9a-f]+)["']\s+token=["']([A-Za-z0-9_-]+)["']\s*/>\s*"""
    r"""</cookie>\s*""",
    re.ASCII,
)


def fingerprint(root: Element, caller: Caller) -> bytes:
    """Return the fingerprint that ties a position to this document and caller."""
    return tokens.fingerprint("fetchxml", caller.user_id, _canonical(root))


def paged(query: Query, root: Element, mark: bytes, key: bytes, size: int | None) -> Query:
    """Return the query with the page that its document asks for.

    `mark` is its fingerprint, `key` the one that cookies are signed under, `size` how many rows a
    page has if the document does not say. Raises `InvalidQuery`.
    """
    top = root.whole("top", limits.QUERY_ROWS_MAX)
    page = root.whole("page", PAGE_MAX)
    count = root.whole("count", limits.QUERY_ROWS_MAX)
    if top is not None and not _PAGING.isdisjoint(root.attributes):
        raise root.refused(
            IMPOSSIBLE, "top cannot stand beside page, count and paging-cookie. Use top or these."
        )
    query = replace(query, top=top, page=page or 1, page_size=count or size)
    cookie = root.attributes.get("paging-cookie")
    if not cookie:
        return query
    number, order, token = _read(cookie, root)
    if order != _order(query):
        raise root.refused(
            COOKIE_ORDER, "the paging cookie is of another order. Start again without it."
        )
    if page not in (None, number + 1):
        raise root.refused(
            IMPOSSIBLE, f"the paging cookie leads to page {number + 1}, not {page}. Ask for that."
        )
    try:
        position = tokens.unseal(key, mark, token)
    except InvalidQuery:
        raise _damaged(root) from None
    return replace(query, page=number + 1, position=position)


def next_cookie(text: str, query: Query, position: Position, caller: Caller, key: bytes) -> str:
    """Return the cookie that leads behind the page that `query`, read from `text`, has answered.

    It is the value of `@Microsoft.Dynamics.CRM.fetchxmlpagingcookie`; `position` is that of the
    page's last row.
    """
    mark = fingerprint(fetch_elements.read(text), caller)
    token = tokens.seal(key, mark, position)
    inner = (
        f'<cookie page="{query.page}"><position order="{_order(query)}" token="{token}" /></cookie>'
    )
    encoded = quote(quote(inner, safe=""), safe="")
    return f'<cookie pagenumber="{query.page + 1}" pagingcookie="{encoded}" istracking="False" />'


def _read(text: str, root: Element) -> tuple[int, str, str]:
    """The page, order and token of a cookie, decoded as far as the client has not."""
    for _ in range(_ENCODED_MAX):
        text = text if text.lstrip().startswith("<") else unquote(text)
    found = _COOKIE.fullmatch(text)
    if found is None:
        raise _damaged(root)
    return int(found[1]), found[2], found[3]


def _damaged(root: Element) -> InvalidQuery:
    return root.refused(
        IMPOSSIBLE,
        "the paging cookie is damaged or belongs to another query. Send it as it was given, with "
        "the same query, or start again without it.",
    )


def _order(query: Query) -> str:
    """The identity of an order."""
    links = [(link.alias, link.orders) for link in all_links(query.links) if link.orders]
    return tokens.fingerprint(query.orders, links).hex()


def _canonical(element: Element) -> object:
    varying = _VARYING if element.name == "fetch" else frozenset()
    attributes = sorted(item for item in element.attributes.items() if item[0] not in varying)
    return element.name, attributes, element.texts, [*map(_canonical, element.children)]
