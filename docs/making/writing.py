"""What all makers of the documentation use: tables, and what structs say of their fields."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
EVENT_HEADINGS: Final = ("field", "type", "always there")
SAID_HERE: Final = {
    "pool_size": "Connections to the database at most; the heartbeat and wake-ups have their own.",
    "host": "Address on which the HTTP API listens.",
    "port": "Port on which the HTTP API listens; 0 takes a free one.",
    "signature_skew": "How far the date of a signed request may be from the server's time.",
    "requests_per_second": "Requests of one key per host; a burst is two seconds' worth.",
    "log_format": "`auto` is `console` on a terminal and `json` elsewhere.",
    "title": "What the class of the error means.",
    "status": "The HTTP status.",
    "detail": "What happened, with which value, and what to do next.",
}
"""Fields whose name is enough in the code; one that gets a docstring there loses its entry here."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, with a final newline."""
    lines = [headings, ["---"] * len(headings), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in cells)


def attribute_docs(kind: type, prefix: str = "") -> dict[str, str]:
    """Return the sentences under a class's fields, by field."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, said in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr):
            assert isinstance(field.target, ast.Name)
            found[prefix + field.target.id] = " ".join(ast.literal_eval(said.value).split())
    return found


def meaning(name: str, said: dict[str, str]) -> str:
    """Return what a field means: its docstring, else what is said here; never both."""
    assert not (name in said and name in SAID_HERE), f"{name} has a docstring: drop it from here"
    return said.get(name) or SAID_HERE[name]


def inspect_fields(kind: type) -> list[list[str]]:
    """Return the fields of a struct under their names on the wire, with their types."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    properties = components[schema["$ref"]]
    needed = properties.get("required", ())
    return [
        [f"`{name}`", type_of(each).removesuffix(" or null"), yes(name in needed)]
        for name, each in properties["properties"].items()
    ]


def type_of(schema: dict[str, Any]) -> str:
    """Return the type that a schema describes, in words."""
    if "anyOf" in schema:
        return " or ".join(type_of(choice) for choice in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    if "prefixItems" in schema:
        return f"[{', '.join(type_of(each) for each in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}"
    text = str(schema.get("format") or schema.get("type", "any"))
    if "minimum" in schema and "maximum" in schema:
        text += f" {schema['minimum']} to {schema['maximum']}"
    if "maxLength" in schema:
        text += f", at most {schema['maxLength']} characters"
    return text


def listed(names: Iterable[str]) -> str:
    """Return names as code, between commas."""
    return ", ".join(f"`{name}`" for name in names)


def yes(value: bool) -> str:
    """Return yes or no."""
    return "yes" if value else "no"
