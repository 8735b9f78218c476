"""Results as text for programs: JSON, YAML, CSV and ids. Pure."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from relevo.cli.output.printing import json_printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Format = Literal["json", "yaml", "csv", "ids"]
IDS: Final[dict[str, tuple[str, ...]]] = {
    "LeaseInfo": ("kind", "unit", "name"),
    "FeedView": ("container", "name"),
    "SubscriptionView": ("topic", "name"),
    "UnitLeaseView": ("lease_token",),
    "MessageView": ("sequence_number",),
}
"""Fields that name a thing of a type, where it is neither `id` nor `name`."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def text_of(value: Any, form: Format, kind: str = "", *, line: bool = False) -> str:
    """Return decoded JSON as text that ends with a line; `kind` is the type of its items.

    With `line` it is one of many values that follow each other: JSON takes one line, and YAML
    begins with `---`.

    >>> text_of({"items": [{"id": "a", "live": True}]}, "csv")
    'id,live\\na,true\\n'
    """
    match form:
        case "json":
            text = json.dumps(value, indent=None if line else 2, ensure_ascii=False)
            return f"{text}\n"
        case "yaml":
            return f"---\n{_yaml(value)}\n" if line else f"{_yaml(value)}\n"
        case "csv":
            return _csv(rows_of(value))
        case "ids":
            return "".join(f"{_identity(row, kind)}\n" for row in rows_of(value))


def rows_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a list, or one value as a row."""
    rows = value.get("items", value) if isinstance(value, dict) else value
    listed = rows if isinstance(rows, list) else [rows]
    return [row if isinstance(row, dict) else {"value": row} for row in listed]


def _identity(row: Mapping[str, Any], kind: str) -> str:
    names = IDS.get(kind) or next(([n] for n in ("id", "name") if n in row), [*row][:1])
    return " ".join(str(row[name]) for name in names)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_cell(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _yaml(value: Any, pad: str = "") -> str:
    match value:
        case dict() if value:
            return "\n".join(f"{pad}{_scalar(name)}:{_below(v, pad)}" for name, v in value.items())
        case list() if value:
            return "\n".join(f"{pad}- {_yaml(each, f'{pad}  ').lstrip(' ')}" for each in value)
        case _:
            return f"{pad}{_scalar(value)}"


def _below(value: Any, pad: str) -> str:
    if isinstance(value, dict | list) and value:
        return f"\n{_yaml(value, f'{pad}  ')}"
    return f" {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Return a value as YAML; text that could be taken for something else is quoted as in JSON.

    >>> _scalar("waiting for ana"), _scalar("no"), _scalar("2031-05-30"), _scalar(1e-7)
    ('waiting for ana', '"no"', '"2031-05-30"', '1.0e-07')
    """
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if plain else json_printable(json.dumps(value, ensure_ascii=False))
    text = json.dumps(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text
