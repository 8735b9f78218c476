"""The languages of the dashboard: their texts are in `catalogue/`."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES: Final = {"en": "English", "es": "Español"}
DEFAULT: Final = "en"
NONE: Final = "\u2013"
"""A dash, where there is no value."""


class Language:
    """The texts of one language.

    >>> language("es")("jobs.title")
    'Trabajos'
    """

    def __init__(self, code: str, texts: Mapping[str, str]) -> None:
        self.code = code
        self.name = NAMES[code]
        self.texts = texts

    def __call__(self, key: str, **values: object) -> str:
        """Return a text; `values` replace its names in braces. Raises `KeyError`."""
        text = self.texts[key]
        return text.format_map(values) if values else text

    def known(self, key: str, default: str) -> str:
        """Return a text if there is one, such as the label of a status."""
        return self.texts.get(key, default)

    def number(self, value: float | None, digits: int = 0) -> str:
        """Return a number with the separators of the language; a dash for None."""
        if value is None:
            return NONE
        text = f"{value:,.{digits}f}"
        return text.translate(str.maketrans(",.", ".,")) if self.code == "es" else text


_FILES: Final = ("", "lists.", "pages.")
"""The beginnings of the names of its files."""


@functools.cache
def language(code: str) -> Language:
    """Return a language; raises `KeyError` for one that there is none of."""
    NAMES[code]
    folder = importlib.resources.files("relevo.dashboard") / "catalogue"
    texts: dict[str, str] = {}
    for name in _FILES:
        texts.update(_flat(tomllib.loads((folder / f"{name}{code}.toml").read_text("utf-8")), ""))
    return Language(code, texts)


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def preferred(accepted: str) -> str:
    """Return the code of the language that an `Accept-Language` header likes best.

    >>> preferred("fr, es-MX;q=0.8, en;q=0.5"), preferred("")
    ('es', 'en')
    """
    wishes = []
    for place, part in enumerate(accepted[:200].split(",")):
        name, _, rest = part.strip().partition(";")
        weight = rest.strip().removeprefix("q=")
        try:
            liked = float(weight) if weight else 1.0
        except ValueError:
            liked = 0.0
        wishes.append((-liked, place, name.partition("-")[0].lower()))
    return next((code for _, _, code in sorted(wishes) if code in NAMES), DEFAULT)
