"""Parameter types of the command line: text, times, pairs, JSON; and the wording of their errors.

JSON is given directly, in a file (`@order.json`) or on standard input (`-`).
"""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click


class Text(click.ParamType[str]):
    """Text; bytes that are not UTF-8 are refused."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        text = str(value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.fail("the text is not UTF-8", param, ctx)
        return text


class Instant(click.ParamType[datetime]):
    """A date and time with a time zone."""

    name = "timestamp"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the time."""
        try:
            instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time; write it like 2031-05-30T18:00:00Z", param, ctx)
        if instant.tzinfo is None:
            self.fail(
                f"{value!r} has no time zone; add Z or an offset such as +02:00",
                param,
                ctx,
            )
        return instant


class Listen(click.ParamType[tuple[str | None, int]]):
    """An address to listen on: `host:port`, or `:port` for the default host."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, int]:
        """Return host, None for the default, and port."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            self.fail(
                f"{value!r} is not of the form host:port; write it like 127.0.0.1:8080", param, ctx
            )
        return host.removeprefix("[").removesuffix("]") or None, int(port)


class Null:
    """JSON's null, because None means that nothing was given."""


class Json(click.ParamType[Any]):
    """JSON text, `@file`, or `-` for standard input."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; null is `Null`."""
        if not isinstance(value, str):
            return value
        decoded = self.read(self._text(value, param, ctx), param, ctx)
        return Null if decoded is None else decoded

    def read(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            self.fail(f"this is not JSON: {error}", param, ctx)

    def _text(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != "-" and not value.startswith("@"):
            return value
        try:
            return sys.stdin.read() if value == "-" else Path(value[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"{value} cannot be read: {error}", param, ctx)


class JsonLines(Json):
    """Several values: a JSON array, or one value on each line."""

    def read(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the values of an array, or of all lines."""
        if text.lstrip().startswith("["):
            return super().read(text, param, ctx)
        read = super().read
        return [read(line, param, ctx) for line in text.splitlines() if line.strip()]


class Key(Json):
    """A partition key: JSON, or plain text without extra quotes."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the key; null is `Null`."""
        if not isinstance(value, str):
            return value
        decoded = self.read(Text().convert(value, param, ctx), param, ctx)
        return Null if decoded is None else decoded

    def read(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of JSON, or the text itself."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text


class KeyText(Key):
    """A partition key that the API takes as JSON text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the key as JSON."""
        if not isinstance(value, str):
            return value
        return json.dumps(self.read(Text().convert(value, param, ctx), param, ctx))


class Where(Key):
    """A condition on items: `total > 5`, `city in ["Vigo", "Lugo"]`, or as JSON."""

    name = "condition"
    _FORM: Final = re.compile(r"^\s*(\S+?)\s*(!=|<=|>=|=|<|>|\bin\b|\bexists\b)\s*(.*?)\s*$")

    def read(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a condition in the form of the API."""
        if text.lstrip().startswith("{"):
            return Json.read(self, text, param, ctx)
        match = self._FORM.match(text)
        if match is None:
            self.fail(f"{text!r} is not a condition; write it like 'total > 5'", param, ctx)
        path, operator, value = match.groups()
        if operator == "exists":
            return {"path": path, "op": operator, "value": value != "false"}
        return {"path": path, "op": operator, "value": super().read(value, param, ctx)}


class Pair(click.ParamType[tuple[str, str]]):
    """One entry of a mapping from text to text."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = Text().convert(value, param, ctx).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, text


_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time with its offset",
    "uuid": "a UUID",
}
_EXPECTED: Final = re.compile(
    r"Expected `(?P<types>[^`]+)`(?P<bound>.*?)(?:, got `(?P<got>[^`]+)`)?"
)
_FIELD: Final = re.compile(r"Object (?P<how>missing|contains unknown)[a-z ]* field `[^`]*`")


def worded(text: str, pointer: str | None) -> str:
    """Reword an error of msgspec for the value at a JSON pointer; others stay unchanged.

    >>> worded("Expected `int` >= 1", "/limit")
    'limit takes a whole number >= 1'
    >>> worded("Object missing required field `until`", "/until")
    'until is missing'
    """
    name = (pointer or "").strip("/").replace("/", ".") or "the value"
    field, expected = _FIELD.fullmatch(text), _EXPECTED.fullmatch(text)
    if field is not None:
        return f"{name} is {'missing' if field['how'] == 'missing' else 'not known'}"
    if expected is None:
        return text
    known = [_TYPES.get(one, one) for one in expected["types"].split(" | ") if one != "null"]
    got = f", not {_TYPES.get(expected['got'], expected['got'])}" if expected["got"] else ""
    return f"{name} takes {' or '.join(known)}{expected['bound']}{got}"
