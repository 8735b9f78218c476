"""Reads CSV and JSON lines: numbered rows, each with its values or an error."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.kernel.decoding import has_nul

if TYPE_CHECKING:
    from collections.abc import Iterator

Format = Literal["csv", "jsonl"]


class Parsed(Struct, frozen=True):
    """A row of the file, or why it could not be read."""

    number: int
    raw: dict[str, Any] | None
    error: str | None = None


def rows(content: bytes, kind: Format, encoding: str, delimiter: str) -> Iterator[Parsed]:
    """Yield the rows of a file, numbered from 1."""
    try:
        text = content.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise InvalidValue(f"the file is not {encoding}: {error}") from error
    text = text.removeprefix("\ufeff")
    return _csv(text, delimiter) if kind == "csv" else _json_lines(text)


def _csv(text: str, delimiter: str) -> Iterator[Parsed]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header = next(reader, None)
    if header is None:
        return
    if len(set(header)) < len(header) or not all(header):
        raise InvalidValue(f"the header has empty or repeated column names: {header}")
    number = 0
    while True:
        number += 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Parsed(number, None, f"line {reader.line_num}: {error}")
            continue
        if not cells:
            number -= 1
        elif len(cells) != len(header):
            yield Parsed(
                number, None,
                f"line {reader.line_num} has {len(cells)} cells, the header has {len(header)}",
            )  # fmt: skip
        else:
            yield _storable(number, dict(zip(header, cells, strict=True)))


def _json_lines(text: str) -> Iterator[Parsed]:
    number = 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        number += 1
        try:
            yield _storable(number, msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.MsgspecError as error:
            yield Parsed(number, None, f"row {number}: {error}")


def _storable(number: int, raw: dict[str, Any]) -> Parsed:
    if has_nul(msgspec.json.encode(raw)):
        error = f"row {number} contains a null character, which cannot be stored"
        return Parsed(number, None, error)
    return Parsed(number, raw)
