"""Batches of the event log, and the events in them. Pure.

An append is stored as one row for each of its stripes, with its events in it. Their bodies are a
JSON array, or an object of columns: an array there has a value for each event, anything else holds
for all of them, and null stands for a member that an event does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from relevo.kernel.events.model import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import asyncpg

Value = TypeVar("Value")
_ROWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_COLUMNS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL: Final = b"null"


def unfold(batch: asyncpg.Record, incarnation: str, after: int) -> Iterator[Recorded]:
    """Yield the events of a row of `relevo.event_batch` that are behind an LSN."""
    count = len(batch["lsns"])
    rows = zip(
        batch["lsns"], _each(batch["types"], count), _each(batch["schemas"], count),
        batch["subjects"], batch["versions"], bodies(batch["data"], count), strict=True,
    )  # fmt: skip
    for lsn, name, schema, subject, version, body in rows:
        if lsn > after:
            yield Recorded(
                log=incarnation, stripe=batch["stripe"], lsn=lsn, at=batch["at"], type=name,
                schema=schema, subject=subject, version=version, body=body,
            )  # fmt: skip


def bodies(data: str, count: int) -> Sequence[msgspec.Raw]:
    """Return the bodies of so many events.

    >>> [bytes(body).decode() for body in bodies('{"id":[1,2],"lane":"post","host":[null,"a"]}', 2)]
    ['{"id":1,"lane":"post"}', '{"id":2,"lane":"post","host":"a"}']
    """
    if data.startswith("["):
        return _ROWS.decode(data)
    columns = [_members(name, column, count) for name, column in _COLUMNS.decode(data).items()]
    return [msgspec.Raw(_body(members)) for members in zip(*columns, strict=True)]


def _members(name: str, column: msgspec.Raw, count: int) -> Sequence[bytes]:
    """Return the member of a name for each event; it is empty where an event has none."""
    label = msgspec.json.encode(name) + b":"
    shared = bytes(column)
    if not shared.startswith(b"["):
        return [b"" if shared == _NULL else label + shared] * count
    values = map(bytes, _ROWS.decode(shared))
    return [b"" if value == _NULL else label + value for value in values]


def _body(members: Iterable[bytes]) -> bytes:
    return b"{" + b",".join(filter(None, members)) + b"}"


def _each(values: Sequence[Value], count: int) -> Sequence[Value]:
    """Return a value for each event, also where one holds for all."""
    return values if len(values) == count else [values[0]] * count
