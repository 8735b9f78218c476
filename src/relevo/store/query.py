"""Queries: conditions over JSON paths, in pages that go on from a key.

A condition is (path, operator, value). The path is a member's name or a pointer (`/address/zip`).
`=`, `!=` and `in` compare JSON values as they are: 1 and 1.0 are equal, 1 and "1" are not. `<`,
`<=`, `>`, `>=` compare numbers with numbers and text with text, by code points; values of other
types do not match. A missing member never matches, except ("path", "exists", False).
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import BadContinuation, ContainerRecreated, InvalidValue
from relevo.kernel import cpu
from relevo.kernel.pages import Fetched
from relevo.store.items import ItemKey, StoredItem, encoded
from relevo.store.lifecycle import SQL
from relevo.store.model import Item
from relevo.store.patch import parse_pointer
from relevo.store.writes import stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from relevo.store.model import ContainerInfo
    from relevo.store.open_container import OpenContainer

T = TypeVar("T")
Order = Literal["id", "ts"]
Condition = tuple[str, str, Any]
CONDITIONS_MAX: Final = 32
CHOICES_MAX: Final = 1_000
ORDERED: Final = ("<", "<=", ">", ">=")
OPERATORS: Final = ("=", "!=", *ORDERED, "in", "exists")


class ItemPage(Struct, Generic[T], frozen=True):
    """Some items, and the token to go on with; None after the last."""

    items: tuple[Item[T], ...]
    token: str | None


class ItemPosition(Struct, frozen=True, array_like=True):
    """The last item of a page, in a token."""

    incarnation: str
    order: Order
    pk: str
    id: str
    ts: datetime


class ItemFilter(Struct, frozen=True, kw_only=True):
    """A query that was checked: SQL over bound parameters, whose numbers start at 3."""

    sql: str
    arguments: tuple[Any, ...]
    order: Order

    def page(self, container_id: int, rows: int, after: ItemPosition | None) -> tuple[Any, ...]:
        """Return the statement of a page, with one item more, and its arguments."""
        conditions = [self.sql]
        arguments = [container_id, rows + 1, *self.arguments]
        if after is not None:
            columns: dict[str, Any] = {"i.pk": after.pk, "i.id": after.id}
            if self.order == "ts":
                columns = {"i.ts": after.ts, **columns}
            places = [f"${len(arguments) + n + 1}" for n in range(len(columns))]
            conditions.append(f"({', '.join(columns)}) > ({', '.join(places)})")
            arguments += columns.values()
        statement = SQL.query_by_key if self.order == "id" else SQL.query_by_time
        return statement.replace("(true)", " and ".join(conditions)), *arguments


def compile_filter(where: Sequence[Any], order_by: Order, pk: str | None) -> ItemFilter:
    """Check a query and turn it into SQL; the caller's values become bound parameters."""
    if order_by not in ("id", "ts"):
        raise InvalidValue(f"order_by is 'id' or 'ts', not {order_by!r}", pointer="order_by")
    arguments: list[Any] = []

    def bound(value: Any, kind: str) -> str:
        arguments.append(value)
        return f"${len(arguments) + 2}::{kind}"

    sql = "true" if pk is None else f"i.pk = {bound(pk, 'text')}"
    if where:
        sql = f"{sql} and {conditions(where, bound)}"
    return ItemFilter(sql=sql, arguments=tuple(arguments), order=order_by)


def conditions(where: Sequence[Any], bound: Callable[[Any, str], str], body: str = "i.body") -> str:
    """Return SQL that is true if the JSON in `body` meets all conditions, and never null.

    `bound` takes a value and the name of its SQL type, and returns its parameter.
    """
    if len(where) > CONDITIONS_MAX:
        raise InvalidValue(
            f"a query has at most {CONDITIONS_MAX} conditions, not {len(where)}", pointer="where"
        )
    parts = []
    for index, condition in enumerate(where):
        try:
            parts.append(_condition(condition, bound, body))
        except InvalidValue as error:
            raise InvalidValue(str(error), pointer=f"/where/{index}") from error
    # Unwrapped, they look so selective that each page would sort all there is, instead of
    # walking along the key until it is full.
    return f"coalesce({' and '.join(parts) or 'true'}, false)"


def _condition(condition: Any, bound: Callable[[Any, str], str], body: str) -> str:
    if not isinstance(condition, tuple | list) or len(condition) != 3:
        raise InvalidValue(f"a condition is (path, operator, value), not {condition!r}")
    path, operator, value = condition
    if operator not in OPERATORS:
        raise InvalidValue(f"an operator is one of {', '.join(OPERATORS)}, not {operator!r}")
    if not isinstance(path, str) or not path or "\x00" in path:
        raise InvalidValue(f"a path is a name or a pointer such as '/a/b', not {path!r}")
    names = parse_pointer(path) if path.startswith("/") else (path,)
    found = f"{body} #> {bound(names, 'text[]')}"
    if operator == "exists":
        if not isinstance(value, bool):
            raise InvalidValue(f"exists takes True or False, not {value!r}")
        return f"({found}) is {'not ' if value else ''}null"
    if operator == "in":
        if not isinstance(value, list | tuple | set | frozenset) or len(value) > CHOICES_MAX:
            raise InvalidValue(f"in takes a list of at most {CHOICES_MAX} values, not {value!r}")
        choices = [encoded(one)[0].decode() for one in value]
        return f"({found}) = any ({bound(choices, 'jsonb[]')})"
    text = encoded(value)[0].decode()
    if operator in ORDERED:
        if isinstance(value, str):
            return (
                f"(jsonb_typeof({found}) = 'string'"
                f" and (({found}) #>> '{{}}') collate \"C\" {operator} {bound(value, 'text')})"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidValue(f"{operator} compares numbers or text, not {value!r}")
        return f"(jsonb_typeof({found}) = 'number' and ({found}) {operator} {bound(text, 'jsonb')})"
    return f"({found}) {'=' if operator == '=' else '<>'} {bound(text, 'jsonb')}"


def encode_token(position: ItemPosition) -> str:
    """Return a position as text that callers pass back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_token(token: str, order: Order, info: ContainerInfo) -> ItemPosition:
    """Return the position of a token; refuse a damaged token, or one of another query."""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        position = msgspec.json.decode(raw, type=ItemPosition)
    except (binascii.Error, ValueError, TypeError, msgspec.MsgspecError) as error:
        raise BadContinuation(
            "the query's token cannot be read; pass it as it was given", pointer="after"
        ) from error
    if position.incarnation != info.incarnation:
        raise ContainerRecreated(
            f"the query's token is of another container than {info.name!r}, or of an earlier one"
            " of that name; begin without a token",
            pointer="after",
        )
    if position.order != order or "\x00" in position.pk + position.id:
        raise BadContinuation(
            f"the query's token is for order_by={position.order!r}", pointer="after"
        )
    return position


class Query(Generic[T]):
    """Items that match, in order: `async for` gives all of them, `page()` the next few.

    Pages go on behind the last returned item, so a concurrent insert or delete neither repeats
    nor hides others. In the order of `ts` an item that is written again comes again, at the end.
    """

    def __init__(
        self,
        open_container: Callable[[], Awaitable[OpenContainer]],
        compiled: Callable[[ContainerInfo], ItemFilter],
        as_item: Callable[[StoredItem], Item[T]],
        *,
        limit: int | None,
        after: str | None,
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidValue(f"limit is at least 1, not {limit}", pointer="limit")
        self._open = open_container
        self._compiled = compiled
        self._as_item = as_item
        self._left = limit
        self._after = after
        self._position: ItemPosition | None = None
        self._begun: tuple[OpenContainer, ItemFilter] | None = None

    @property
    def token(self) -> str | None:
        """Behind the last item that was given; a query with `after=token` goes on there."""
        return self._after if self._position is None else encode_token(self._position)

    async def page(
        self, rows: int = limits.PAGE_ROWS_DEFAULT, *, limited: bool = False
    ) -> ItemPage[T]:
        """Return the next items, at most `rows` and not many bytes; the last page has no token.

        With `limited` it is the query of a user, which has little time and few connections.
        """
        if not 1 <= rows <= limits.PAGE_ROWS_MAX:
            raise InvalidValue(f"a page has 1 to {limits.PAGE_ROWS_MAX} rows, not {rows}")
        found = await self._next(rows, limited=limited)
        size = sum(len(item.text or "") for item in found.items)
        given = await cpu.decoded(size, lambda: tuple([self._give(item) for item in found.items]))
        more = found.more and self._left != 0
        return ItemPage(given, self.token if more else None)

    async def __aiter__(self) -> AsyncIterator[Item[T]]:
        more = True
        while more and self._left != 0:
            found = await self._next(limits.PAGE_ROWS_DEFAULT)
            more = found.more
            for item in found.items:
                yield self._give(item)

    def _give(self, one: StoredItem) -> Item[T]:
        opened, wanted = self._started()
        if self._left is not None:
            self._left -= 1
        self._position = ItemPosition(
            opened.info.incarnation, wanted.order, one.key.pk, one.key.id, one.ts
        )
        return self._as_item(one)

    async def _next(self, rows: int, *, limited: bool = False) -> Fetched[StoredItem]:
        """Return the next items."""
        if self._begun is None:
            opened = await self._open()
            self._begun = opened, self._compiled(opened.info)
            if self._after is not None:
                self._position = decode_token(self._after, self._begun[1].order, opened.info)
        opened, wanted = self._started()
        rows = rows if self._left is None else min(rows, self._left)
        if rows == 0:
            return Fetched([], more=False)
        reads = opened.database.user_queries if limited else opened.database
        statement = wanted.page(opened.info.id, rows, self._position)
        found = await reads.fetch_page(*statement, rows=rows)
        if not found.items:
            await opened.check()
        return found.each(lambda one: stored(ItemKey(one["id"], one["pk"], one["epk"]), one))

    def _started(self) -> tuple[OpenContainer, ItemFilter]:
        assert self._begun is not None, "a page comes before its items"
        return self._begun
