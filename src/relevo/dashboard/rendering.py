"""From templates to HTML.

Stored text is hostile. Templates escape every value, and `visible` shows control characters and the
marks that turn the direction of text as what they are.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from relevo.dashboard.languages import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

_MARKS: Final = (
    0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF,
)  # fmt: skip
_SHOWN: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{code: f"⟨U+{code:04X}⟩" for code in (*range(0x80, 0xA0), *_MARKS)},
    **{code: f"⟨U+{code:04X}⟩" for code in range(0xD800, 0xE000)},
}
LIVE: Final = "live_"
"""Blocks of templates that are sent again begin with this."""


def visible(value: Any) -> Any:
    """Return a value as templates put it out.

    >>> visible("a\\u202eb\\x07")
    'a⟨U+202E⟩b␇'
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return value.translate(_SHOWN)


def exact(value: datetime) -> str:
    """Return a time in UTC, as it is shown without scripts."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(value: datetime) -> str:
    """Return a time for programs."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(value: float | None) -> str:
    """Return a length of time in the two largest units.

    >>> seconds(0.25), seconds(75), seconds(7_260), seconds(200_000)
    ('250 ms', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if value is None:
        return NONE
    if value < 1:
        return f"{value * 1_000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    whole = int(value)
    for size, unit, small, below in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {below}" if rest else f"{whole // size} {unit}"
    raise AssertionError(value)


def pretty(value: Any) -> str:
    """Return a JSON value over several lines."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def compact(value: Any) -> str:
    """Return a value as JSON in one line."""
    return msgspec.json.encode(value).decode()


def segment(value: str) -> str:
    """Return a name as a segment of a path.

    >>> segment("order/1")
    'order%2F1'
    """
    return quote(value, safe="")


@functools.cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("relevo.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {"exact": exact, "iso": iso, "seconds": seconds, "pretty": pretty}
    made.filters |= {"compact": compact, "segment": segment}
    return made


def page(template: str, variables: Mapping[str, Any]) -> str:
    """Return a whole page."""
    found, known = _prepared(template, variables)
    return found.render(known)


def live_parts(template: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the live blocks of a page by name."""
    found, known = _prepared(template, variables)
    context = found.new_context(known)
    return {
        name: "".join(block(context))
        for name, block in found.blocks.items()
        if name.startswith(LIVE)
    }


def _prepared(template: str, variables: Mapping[str, Any]) -> tuple[Template, dict[str, Any]]:
    """Return a template, and its variables with the macros `ui` that know them."""
    environment_ = environment()
    known = dict(variables)
    known["ui"] = environment_.get_template("ui.html").make_module(known)
    return environment_.get_template(template), known
