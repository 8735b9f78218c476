"""Tests of texts and lists, on values: membership, affixes and patterns, by a node's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions import patterns
from relevo.kernel.expressions.patterns import LikePattern
from relevo.kernel.expressions.values import Comparison, comparison, fold, shown, text

if TYPE_CHECKING:
    from typing import Literal

    from relevo.kernel.expressions.tree import Rules

Test = Callable[..., bool | None]


def membership(rules: Rules) -> Test:
    """Return the test whether a list has an item, or a text contains another."""
    folded, equal = rules.case == "folded", _equality(rules)

    def has(item: Any, container: Any) -> bool | None:
        if isinstance(container, list):
            items = (_folded(each, folded) for each in container)
            return _among(_folded(item, folded), items, equal)
        return _of_texts(rules, "in", container, item, str.__contains__)

    return has


def one_of(items: Iterable[Any], rules: Rules) -> Test:
    """Return the test whether an item is one of those that the expression itself lists."""
    folded, equal = rules.case == "folded", _equality(rules)
    known = [_folded(item, folded) for item in items]
    return lambda item: _among(_folded(item, folded), known, equal)


def affix(side: Literal["start", "end"], rules: Rules) -> Test:
    """Return the test whether a text starts or ends with another."""
    at_start, folded = side == "start", rules.case == "folded"
    who, exact = "StartsWith" if at_start else "EndsWith", replace(rules, case="exact")

    def test(whole: str, part: str) -> bool:
        # Letter case is folded character by character, so the rest of the text need not be.
        spare = len(whole) - len(part)
        if spare < 0:
            return False
        end = whole[: len(part)] if at_start else whole[spare:]
        return end == part or (folded and fold(end) == fold(part))

    def has(whole: Any, part: Any) -> bool | None:
        if type(whole) is str and type(part) is str:
            return test(whole, part)
        return _of_texts(exact, who, whole, part, test)

    return has


class LikeTest:
    """The test whether a text matches a pattern, with its cost.

    A pattern of the expression itself is read once. A faulty one fails only when it meets a text.
    """

    def __init__(self, rules: Rules, written: Any = None, escape: Any = None) -> None:
        self.rules = rules
        self.pattern: LikePattern | None = None
        if type(written) is str and (escape is None or type(escape) is str):
            try:
                self.pattern = self._read(written, escape)
            except ExpressionFailed:
                return

    def cost(self, value: Any, written: Any = "", *_: Any) -> int:
        """Return how many steps the test takes."""
        if type(value) is not str:
            return 0
        if self.pattern is not None:
            return self.pattern.cost(value)
        return patterns.cost(value, written) if type(written) is str else 0

    def __call__(self, value: Any, *pattern: Any) -> bool | None:
        """Test a value; the pattern and its escape are given unless they were read before."""
        if self.rules.nulls == "unknown" and None in (value, *pattern):
            return None
        found = self.pattern
        if found is None:
            written, escape = self._text(pattern[0]), pattern[1] if pattern[1:] else None
            if escape is not None and type(escape) is not str:
                raise ExpressionFailed(f"ESCAPE needs one character and got {shown(escape)}.")
            if written is None:
                return None
            found = self._read(written, escape)
        tested = self._text(value)
        if tested is None:
            return None
        return found.matches(_folded(tested, self.rules.case == "folded"))

    def _read(self, written: str, escape: str | None) -> LikePattern:
        return LikePattern(written, escape, folded=self.rules.case == "folded")

    def _text(self, value: Any) -> str | None:
        if type(value) is not str and self.rules.mixed == "unknown":
            return None if value is not None or self.rules.nulls == "unknown" else ""
        return text(value, "Like")


def _equality(rules: Rules) -> Comparison:
    return comparison("=", replace(rules, case="exact"))


def _folded(value: Any, folded: bool) -> Any:
    return fold(value) if folded and type(value) is str else value


def _among(wanted: Any, items: Iterable[Any], equal: Comparison) -> bool | None:
    """Whether an item is equal; without such an item, null if a comparison gave null."""
    result: bool | None = False
    for item in items:
        same = equal(item, wanted)
        if same:
            return True
        if same is None:
            result = None
    return result


def _of_texts(
    rules: Rules, who: str, whole: Any, part: Any, test: Callable[[str, str], bool]
) -> bool | None:
    if rules.nulls == "unknown" and (whole is None or part is None):
        return None
    a, b = text(whole, who), text(part, who)
    return test(fold(a), fold(b)) if rules.case == "folded" else test(a, b)
