"""What the decoder says of a value, in words for people at a command line."""

from __future__ import annotations

import re
from typing import Final

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
    """Return a message about the value at a JSON pointer; others stay as they are.

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
