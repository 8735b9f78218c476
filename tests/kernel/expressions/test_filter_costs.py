"""What SQL filters and actions cost: reading and evaluating them never holds the loop for long."""

from __future__ import annotations

import pytest

from relevo import limits
from relevo.errors import ExpressionFailed
from relevo.kernel.expressions import sqlaction, sqlfilter, to_python, tree
from tests.support.watchdog import HELD_SECONDS_MAX, seconds_of

LENGTH = limits.FILTER_LENGTH_MAX
LONG = 32_000
HOSTILE = {
    "a": "a" * LONG,
    "h": "a" * 2_499,  # up to here, texts are searched by the simple method
    "p": "%" + "a" * 600 + "b" + "a" * 600 + "%",  # and this is what it finds hardest
    "w": "%" + "a_" * 600 + "b%",
    "m": "%" + "a%" * 2_000 + "b",
    "b": b"a" * LONG,
    "i": 2**63 - 1,
    "f": 1e308,
}
SCOPE = sqlfilter.scope({}, HOSTILE)
UNITS = [
    *(f"a LIKE {pattern}" for pattern in "pwm"),
    *(f"h LIKE {pattern}" for pattern in "pwm"),
    "a LIKE '%aaaaaaaaab%'",
    "a LIKE '%a_a_a_a_b%'",
    "a LIKE '%a%a%a%a%b%'",
    "a LIKE '%a!%' ESCAPE '!'",
    "a IN (a, a, a)",
    "a = a",
    "b = b",
    "a + a = a",
    "p(a) = 1",
    "i * i = i",
    "f * f % i = f",
    "i IN (1,2,3,4,5,6,7,8,9)",
]


def repeated(part: str, by: str, length: int) -> str:
    return by.join([part] * ((length - len(part)) // (len(part) + len(by)) + 1))


def copies(unit: str, length: int) -> to_python.Evaluate:
    """The function in which a unit stands as often as there is room for it in a filter."""
    node = sqlfilter.parse(unit)
    nodes = tree.measure(node, depth_max=9, nodes_max=99)
    count = min(length // (len(unit) + len("AND ")), limits.EXPRESSION_STEPS_MAX // nodes - 1)
    return to_python.function(tree.List((node,) * count))


@pytest.mark.parametrize("length", [LENGTH, limits.FILTER_LENGTH_LARGEST])
def test_no_filter_of_one_repeated_part_takes_long(length: int) -> None:
    took = {unit: seconds_of(copies(unit, length), SCOPE) for unit in UNITS}
    worst = max(took, key=lambda unit: took[unit])
    assert took[worst] <= HELD_SECONDS_MAX, (worst, took[worst])


TEXTS = {
    "chain": repeated("a=1", " or ", LENGTH),
    "sum": repeated("1", "+", LENGTH - 2) + "=1",
    "list": f"a in ({repeated('1', ',', 500)})",
    "lists": repeated("a in(1,1,1,1,1,1)", "and ", LENGTH),
    "nesting": "(" * 60 + repeated("a=1", " or ", LENGTH - 120) + ")" * 60,
    "parentheses": "(" * LENGTH,
    "negations": "not " * 256,
    "signs": "-" * LENGTH,
    "quotes": "'" * (LENGTH - 1),
    "brackets": "[" * LENGTH,
    "names": '"' * (LENGTH - 1),
    "digits": "9" * LENGTH,
    "fraction": f"a = {'9' * 500}.{'9' * 500}",
    "letters": "a" * LENGTH,
    "spaces": " " * LENGTH,
    "wrong at the end": repeated("a=1", " or ", LENGTH - 2) + " $",
}


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_takes_long_to_read(name: str) -> None:
    assert len(TEXTS[name]) <= LENGTH
    sqlfilter.parse("a = 1")  # the parse table is there
    assert seconds_of(sqlfilter.compiled, TEXTS[name]) <= HELD_SECONDS_MAX
    assert (
        seconds_of(sqlaction.parse, f"SET a = ({TEXTS[name][: LENGTH - 10]})") <= HELD_SECONDS_MAX
    )


def test_no_action_takes_long() -> None:
    user = {f"name {n}": n for n in range(5_000)} | HOSTILE
    for value in ("a + a", "h + h", "(a LIKE w)", "p(a)", "i"):
        text = repeated(f"SET x={value}", ";", LENGTH)
        text = ";".join(text.split(";")[: limits.ACTION_STATEMENTS_MAX])
        assert seconds_of(sqlaction.parse(text).apply, {}, user) <= HELD_SECONDS_MAX
    removed = " ".join(f'REMOVE "name {n}"' for n in range(32))
    assert seconds_of(sqlaction.parse(removed).apply, {}, user) <= HELD_SECONDS_MAX


@pytest.mark.parametrize(
    "text", ["a = c", "a < c", "a IN (c, c)", "a + c = a", "p(a) = 1", "b = d"]
)
def test_texts_and_bytes_are_charged_wherever_they_are_looked_at(text: str) -> None:
    values = {**HOSTILE, "c": HOSTILE["a"], "d": bytes([*b"a" * (LONG - 1), 0])}
    with pytest.raises(ExpressionFailed, match="too many steps"):
        copies(text, LENGTH)(sqlfilter.scope({}, values))
