"""Selectors and sets of selectors, each kept once and numbered, so that they are bits of integers.

Jobs with equal selectors share a `SelectorShape`. Code that derives values from shapes or selectors
reads the two logs from where it stopped, and begins again when `epoch` has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.kernel.labels import Value, kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.router.core.selectors import WorkerSelector

Anchor = str
"""A label, key and value in one text: texts remember their hashes, and anchors are looked up
for every job and worker."""

SPARE: Final = 1024
"""Shapes without a job that are kept at least: what was asked for once is asked for again."""


class SelectorShape:
    """A job's selectors, apart from those on the worker's id."""

    __slots__ = ("anchor", "jobs", "mask", "number", "selectors")

    def __init__(
        self, number: int, mask: int, selectors: tuple[int, ...], anchor: Anchor | None
    ) -> None:
        self.number = number
        self.anchor = anchor
        """A label that every worker meeting this has, if there is one: jobs wait under it."""
        self.mask = mask
        """The numbers of the selectors as bits."""
        self.selectors = selectors
        self.jobs = 0


class Vocabulary:
    """All selectors and shapes that jobs use, and some that they used not long ago."""

    def __init__(self) -> None:
        self.epoch = 0
        self.selectors: list[WorkerSelector] = []
        """By their numbers, which are given in the order in which they come up."""
        self.asked_by: list[int] = []
        """By selector: the shapes that have it, as bits."""
        self.shapes: list[SelectorShape] = []
        self.every = 0
        """The numbers of all shapes as bits."""
        self._numbers: dict[tuple[object, ...], int] = {}
        self._by_mask: dict[int, SelectorShape] = {}
        self._free: list[int] = []
        self._unused = 0

    def shape(self, selectors: Iterable[WorkerSelector]) -> SelectorShape:
        """Return the shape of a further job that asks for these."""
        mask = 0
        for selector in selectors:
            known = _known(selector)
            number = self._numbers.get(known)
            if number is None:
                number = self._numbers[known] = self._fresh_selector(selector)
            mask |= 1 << number
        found = self._by_mask.get(mask)
        if found is None:
            found = self._fresh_shape(mask)
        elif not found.jobs:
            self._unused -= 1
        found.jobs += 1
        return found

    def release(self, shape: SelectorShape) -> None:
        """A job that asked for this is gone."""
        shape.jobs -= 1
        if not shape.jobs:
            self._unused += 1
            if self._unused > max(SPARE, len(self.shapes) // 2):
                self._forget_unused()

    def _fresh_selector(self, selector: WorkerSelector) -> int:
        self.selectors.append(selector)
        self.asked_by.append(0)
        return len(self.selectors) - 1

    def _fresh_shape(self, mask: int) -> SelectorShape:
        number = self._free.pop() if self._free else len(self.shapes)
        members = tuple(at for at in range(mask.bit_length()) if mask >> at & 1)
        found = SelectorShape(number, mask, members, self._anchor(members))
        self._keep(found)
        return found

    def _anchor(self, selectors: tuple[int, ...]) -> Anchor | None:
        """Return the label that is asked for and that the fewest others ask for."""
        equal = [
            at
            for at in selectors
            if self.selectors[at].label_operator == "equal" and self.selectors[at].value is not None
        ]
        rarest = min(equal, key=lambda at: self.asked_by[at].bit_count(), default=None)
        if rarest is None:
            return None
        return anchor(self.selectors[rarest].key, self.selectors[rarest].value)

    def _keep(self, shape: SelectorShape) -> None:
        bit = 1 << shape.number
        self.every |= bit
        for selector in shape.selectors:
            self.asked_by[selector] |= bit
        self.shapes.append(shape)
        self._by_mask[shape.mask] = shape

    def _forget_unused(self) -> None:
        """Drop shapes without jobs, and selectors without shapes.

        Shapes in use keep their numbers, for their jobs are sorted by them; selectors are numbered
        anew.
        """
        self._free += [one.number for one in self.shapes if not one.jobs]
        kept = [one for one in self.shapes if one.jobs]
        used = sorted({at for one in kept for at in one.selectors})
        moved = {at: place for place, at in enumerate(used)}
        self.selectors = [self.selectors[at] for at in used]
        self._numbers = {_known(one): place for place, one in enumerate(self.selectors)}
        self.asked_by = [0] * len(used)
        self.shapes, self._by_mask, self.every, self._unused = [], {}, 0, 0
        for shape in kept:
            shape.selectors = tuple(moved[at] for at in shape.selectors)
            shape.mask = sum(1 << at for at in shape.selectors)
            self._keep(shape)
        self.epoch += 1


def anchor(key: str, value: Value | None) -> Anchor:
    """Return the same text for labels that are the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{key}\0{kind(value)}\0{value}"


def _known(selector: WorkerSelector) -> tuple[object, ...]:
    value = selector.value
    return selector.key, selector.label_operator, value is True or value is False, value
