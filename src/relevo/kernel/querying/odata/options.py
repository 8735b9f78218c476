"""From the query part of a URL to a query.

    options = read("$select=name&$filter=statecode%20eq%200&$top=5")
    query = query_of(options, table, Request(catalogue, caller, now, key))

Options are case-sensitive and stand there once; what is not served is said to be so, and what has
no `$` or `@` is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_plus

from msgspec import Struct
from msgspec.structs import replace

from relevo import limits
from relevo.kernel.expressions.tree import Compare, Constant, Name
from relevo.kernel.querying import tokens
from relevo.kernel.querying.catalogue import Catalogue, Table
from relevo.kernel.querying.errors import InvalidQuery, OptionNotServed, QueryTooLong
from relevo.kernel.querying.model import RULES, Caller, Query
from relevo.kernel.querying.odata.filters import Reader
from relevo.kernel.querying.odata.grammar import SourcePlace
from relevo.kernel.querying.odata.parts import ODataParts, top

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.kernel.querying.model import Position

SERVED: Final = frozenset(
    {"$select", "$expand", "$filter", "$orderby", "$top", "$count", "$apply", "$skiptoken"}
)
NOT_SERVED: Final = frozenset({"$skip", "$search", "$format"})
_ALONE: Final = frozenset({"fetchXml", "sql"})
"""Other options that define the result."""


class Options(Struct, frozen=True):
    """The options of a request, decoded."""

    system: Mapping[str, str]
    """By name, with its `$`; white space at both ends is gone."""
    aliases: Mapping[str, str]
    """Values of `@name`."""
    other: Mapping[str, str]
    """Without `$` and `@`: not read here."""

    @property
    def size(self) -> int:
        """How many characters there are to read."""
        given = (self.system, self.aliases, self.other)
        return sum(len(text) for each in given for text in each.values())


class Request(Struct, frozen=True, kw_only=True):
    """The context of reading a query."""

    catalogue: Catalogue
    caller: Caller
    now: datetime
    """The current time by the storage clock, for `Today` and the like."""
    key: bytes
    """Under which positions are signed."""
    page_size: int | None = None
    """The page size that the client asks for with `odata.maxpagesize`."""


def read(raw: str) -> Options:
    """Return the options in the query part of a URL, without its `?`; raises `InvalidQuery`."""
    size = len(raw.encode("utf-8", "surrogatepass"))
    if size > limits.QUERY_URL_BYTES_MAX:
        raise QueryTooLong(
            f"The URL has {size:,} bytes and may have {limits.QUERY_URL_BYTES_MAX:,}; shorten it."
        )
    system: dict[str, str] = {}
    aliases: dict[str, str] = {}
    other: dict[str, str] = {}
    for part in filter(None, raw.split("&")):
        name, _, value = part.partition("=")
        key, text = _decoded(name), _decoded(value)
        kind = {"$": system, "@": aliases}.get(key[:1], other)
        if kind is system:
            _known(key)
        if key in kind and (kind is not other or key in _ALONE):
            raise InvalidQuery(
                f"The option {key[:64]} stands there twice; drop one.", pointer=key[:64]
            )
        kind[key] = text
    return Options(system, aliases, other)


def _decoded(text: str) -> str:
    try:
        found = unquote_plus(text, errors="strict").strip()
        found.encode()
    except UnicodeError:
        raise InvalidQuery("The URL is no UTF-8; encode it as UTF-8 and by percents.") from None
    if "\0" in found:
        raise InvalidQuery("The URL has a null character; drop it.")
    return found


def _known(name: str) -> None:
    if name in NOT_SERVED:
        raise OptionNotServed(f"The option {name} is not served; leave it out.", pointer=name)
    if name not in SERVED:
        raise InvalidQuery(
            f"There is no option {name[:64]}; use {', '.join(sorted(SERVED))} (in lower case).",
            pointer=name[:64],
        )


def fingerprint(options: Options, table: Table, caller: Caller) -> bytes:
    """Return the fingerprint that ties a position to this query and caller."""
    asked = {**options.system, **options.aliases}
    asked.pop("$skiptoken", None)
    return tokens.fingerprint(caller.user_id, table.name, *sorted(asked.items()))


def next_link(
    url: str, options: Options, table: Table, caller: Caller, position: Position, key: bytes
) -> str:
    """Return the URL of the next page; `url` is that of the request without its query."""
    token = tokens.seal(key, fingerprint(options, table, caller), position)
    asked = {**options.system, **options.aliases, **options.other, "$skiptoken": token}
    safe = "$@(),;:/'*!-._~"
    pairs = [f"{quote(name, safe=safe)}={quote(text, safe=safe)}" for name, text in asked.items()]
    return f"{url}?{'&'.join(pairs)}"


def query_of(options: Options, table: Table, request: Request) -> Query:
    """Return the query over a table that options ask for; raises `InvalidQuery`."""
    system, parts = options.system, ODataParts(_reader(options, request))
    size, position = request.page_size, None
    if "$skiptoken" in system:
        mark = fingerprint(options, table, request.caller)
        position = tokens.unseal(request.key, mark, system["$skiptoken"])
    query = Query(
        table=table.name,
        top=top(system["$top"], SourcePlace("$top")) if "$top" in system else None,
        page_size=None if size is None else min(size, limits.QUERY_ROWS_MAX),
        count=_flag("$count", system.get("$count", "false")),
        position=position,
    )
    if "$apply" in system:
        return _grouped(query, table, parts, system)
    found = parts.filter(system["$filter"], table) if "$filter" in system else None
    return replace(
        query,
        items=parts.select(system["$select"], table) if "$select" in system else (),
        filter=found.tree if found else None,
        links=found.links if found else (),
        orders=parts.orders(system["$orderby"], table) if "$orderby" in system else (),
        expands=parts.expands(system["$expand"], table) if "$expand" in system else (),
    )


def row_query(options: Options, table: Table, request: Request, key: UUID | str) -> Query:
    """Return the query for the one row with a key; only `$select` and `$expand` apply to it."""
    for name in options.system:
        if name not in ("$select", "$expand"):
            raise InvalidQuery(f"{name} does not apply to a single row; drop it.", pointer=name)
    found = query_of(options, table, request)
    only = Compare("=", Name(table.key), Constant(key), RULES)
    return replace(found, filter=only, top=1)


def _reader(options: Options, request: Request) -> Reader:
    return Reader(request.catalogue, request.caller, request.now, options.aliases)


def _grouped(query: Query, table: Table, parts: ODataParts, system: Mapping[str, str]) -> Query:
    for name in ("$filter", "$select", "$expand"):
        if name in system:
            raise InvalidQuery(
                f"{name} cannot stand beside $apply; filter with filter(…) inside it, and name "
                "what is wanted in groupby and aggregate.",
                pointer=name,
            )
    groups = parts.apply(system["$apply"], table)
    orders = parts.group_orders(system["$orderby"]) if "$orderby" in system else ()
    return replace(
        query,
        aggregate=True,
        items=groups.items,
        filter=groups.filter,
        links=groups.links,
        orders=orders,
    )


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidQuery(f"{name} is `{text[:64]}`; write true or false.", pointer=name)
    return text == "true"
