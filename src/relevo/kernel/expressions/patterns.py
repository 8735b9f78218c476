"""Patterns of LIKE: `%` is any run of characters, `_` any one character. Matching is linear.

A pattern is split at its `%`s. The first part belongs to the start of the text and the last to its
end. Every other part is searched for once, from the end of the part before: its leftmost place
leaves the most text to the rest, so the matcher never goes back. `str.find` searches for a part
without `_`; for others the Shift-And method moves one bit per character of the part along the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions.costs import CHARACTERS_PER_STEP, COMPARISONS_PER_STEP
from relevo.kernel.expressions.values import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

WILD: Final = None
"""What stands for `_` among the characters of a part."""
SHIFTS_PER_STEP: Final = 4
"""Characters over which the bits of a short part move in one step."""
BITS_PER_SHIFT: Final = 1_024
FIND_STEPS_MAX: Final = 2_500
"""The most that `str.find` costs in texts so short that it compares at every place."""
FOUND_PER_STEP: Final = 8
"""Characters that `str.find` covers in one step of the worst longer text."""

_Characters = tuple[str | None, ...]


class PatternPart:
    """Characters that stand together in a pattern."""

    def __init__(self, characters: _Characters) -> None:
        self.length = len(characters)
        self.literal = "".join(filter(None, characters))
        self.is_literal = len(self.literal) == self.length
        self.characters = characters
        self._pieces: list[tuple[int, str]] | None = None
        self._masks: tuple[dict[str, int], int] | None = None

    def is_at(self, text: str, start: int) -> bool:
        """Whether the text has this part at a place; it must be long enough."""
        if self.is_literal:
            return text.startswith(self.literal, start)
        if self._pieces is None:
            self._pieces = list(_pieces(self.characters))
        return all(text.startswith(piece, start + offset) for offset, piece in self._pieces)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the leftmost place of this part in a stretch of the text; -1 if there is none."""
        if self.is_literal:
            return text.find(self.literal, start, end)
        if self._masks is None:
            self._masks = _masks(self.characters)
        masks, wild = self._masks
        bits, complete = 0, 1 << (self.length - 1)
        for position in range(start, end):
            bits = (bits << 1 | 1) & masks.get(text[position], wild)
            if bits & complete:
                return position + 1 - self.length
        return -1


class LikePattern:
    """A pattern, ready to be matched. Raises `ExpressionFailed` if its escapes are wrong."""

    def __init__(self, written: str, escape: str | None = None, *, folded: bool = False) -> None:
        first, *rest = (
            PatternPart(tuple(fold(each) if folded and each else each for each in part))
            for part in _split(written, escape)
        )
        self.first = first
        self.last = rest.pop() if rest else None
        """None if there is no `%`: then the first part is all."""
        self.middle = [part for part in rest if part.length]
        ends = first.length + (self.last.length if self.last else 0)
        self.length_min = ends + sum(part.length for part in self.middle)
        self._longest = max((part.length for part in self.middle), default=0)
        self._finds = all(part.is_literal for part in self.middle)

    def matches(self, text: str) -> bool:
        """Whether the whole text has the form of the pattern."""
        if len(text) < self.length_min or not self.first.is_at(text, 0):
            return False
        if self.last is None:
            return len(text) == self.first.length
        end = len(text) - self.last.length
        if not self.last.is_at(text, end):
            return False
        place = self.first.length
        for part in self.middle:
            start = part.find(text, place, end)
            if start < 0:
                return False
            place = start + part.length
        return True

    def cost(self, text: str) -> int:
        """Return how many steps it takes to match a text: linear in its length."""
        length = len(text)
        if length < self.length_min or not self.middle:
            return self.length_min // CHARACTERS_PER_STEP
        if self._finds:
            compared = length * self._longest // COMPARISONS_PER_STEP
            bound = max(length // FOUND_PER_STEP, FIND_STEPS_MAX)
            return length // CHARACTERS_PER_STEP + min(compared, bound)
        return _shifting(length, self._longest)


def cost(text: str, written: str) -> int:
    """Return how many steps it takes at most to read a pattern and match a text with it."""
    return _shifting(len(text) + len(written), len(written))


def _shifting(length: int, bits: int) -> int:
    return length * (1 + bits // BITS_PER_SHIFT) // SHIFTS_PER_STEP


def _split(written: str, escape: str | None) -> list[list[str | None]]:
    """The characters of a pattern between its `%`s."""
    if escape is not None and len(escape) != 1:
        raise ExpressionFailed(
            f"ESCAPE needs one character and got \"{escape[:40]}\"; use for example '!'."
        )
    parts: list[list[str | None]] = [[]]
    characters = iter(written)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape):
                raise ExpressionFailed(
                    f'In the pattern "{written[:40]}" the escape {escape} precedes '
                    f"{escaped or 'nothing'}; it must precede %, _ or itself."
                )
            parts[-1].append(escaped)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(WILD if character == "_" else character)
    return parts


def _pieces(characters: _Characters) -> Iterator[tuple[int, str]]:
    """The runs between the `_`s of a part, each with its place in it."""
    start = 0
    for place, character in enumerate((*characters, WILD)):
        if character is WILD:
            if start < place:
                yield start, "".join(filter(None, characters[start:place]))
            start = place + 1


def _masks(characters: _Characters) -> tuple[dict[str, int], int]:
    """For each character the places in a part where it fits, as bits, and those where any does."""
    wild = sum(1 << place for place, character in enumerate(characters) if character is WILD)
    masks: dict[str, int] = {}
    for place, character in enumerate(characters):
        if character is not WILD:
            masks[character] = masks.get(character, wild) | 1 << place
    return masks, wild
