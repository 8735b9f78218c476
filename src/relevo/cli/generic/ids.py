"""Short ids: the first characters of an id stand for it where no other id begins so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click
import msgspec

from relevo import limits
from relevo.cli import tree
from relevo.errors import Conflict, NotFound
from relevo.kernel.command_words import singular

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.cli.calling.calls import Calls
    from relevo.kernel.operation import Operation

NOUNS: Final = frozenset({"bulk_deletes", "jobs", "keys", "teams", "units", "users"})
"""Nouns of operations whose path has an id that Relevo made."""
SHORTEST: Final = 4
SHOWN_MAX: Final = 10
PAGES_MAX: Final = 20
_WHOLE_KEY: Final = re.compile(r"key-[0-9a-f]{16}")
_HEX: Final = re.compile(r"[0-9a-fA-F-]{4,36}")


class IdText(click.ParamType[str]):
    """An id, or at least its first four characters."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text in lower case."""
        text = str(value)
        if not _HEX.fullmatch(text):
            self.fail(
                f"{value!r} is not an id; give one that a list shows, or at least its first"
                f" {SHORTEST} characters",
                param,
                ctx,
            )
        return text.lower()


def takes_short(operation: Operation) -> bool:
    """Whether an operation's path has an id that may be shortened."""
    return operation.name.partition(".")[0] in NOUNS and "id" in operation.parameters


async def with_full_id(
    calls: Calls, operation: Operation, values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the values of an operation with the whole id, if it takes one."""
    if not takes_short(operation):
        return values
    noun = operation.name.partition(".")[0]
    return {**values, "id": await full_id(calls, noun, str(values["id"]))}


async def full_id(calls: Calls, noun: str, text: str) -> str:
    """Return the id that begins with a text; raises `NotFound`, or `Conflict` with the matches."""
    if _WHOLE_KEY.fullmatch(text):
        return text
    try:
        return str(UUID(text))
    except ValueError:
        matches = await _matching(calls, noun, text)
    if any(each["id"] == text for each in matches):
        return text
    what = singular(noun).replace("_", " ")
    if not matches:
        raise NotFound(f"there is no {what} whose id begins with {text!r}")
    if len(matches) > 1:
        shown = ", ".join(_described(each) for each in matches[:SHOWN_MAX])
        more = f" and {len(matches) - SHOWN_MAX} more" if len(matches) > SHOWN_MAX else ""
        raise Conflict(f"the ids of {len(matches)} {noun} begin with {text!r}: {shown}{more}")
    return str(matches[0]["id"])


def _described(thing: Mapping[str, Any]) -> str:
    name = thing.get("name")
    return f"{thing['id']} ({name})" if name else str(thing["id"])


async def _matching(calls: Calls, noun: str, text: str) -> list[Mapping[str, Any]]:
    operation = tree.operation(f"{noun}.list")
    values: dict[str, Any] = {"limit": limits.PAGE_ROWS_MAX}
    if noun == "jobs":
        values["id_prefix"] = text
    found: list[Mapping[str, Any]] = []
    for _ in range(PAGES_MAX):
        page = msgspec.json.decode((await calls.call(operation, values)).body)
        found += [each for each in page["items"] if each["id"].startswith(text)]
        if page["next"] is None:
            return found
        values["cursor"] = page["next"]
    raise Conflict(f"there are too many {noun} to find one by {text!r}; give its whole id")
