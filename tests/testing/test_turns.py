"""The checker of turns sees each violation."""

from __future__ import annotations

from typing import Any

import pytest

from relevo.testing.trace import Violation, check_invariants
from relevo.testing.turns import check_turns, outputs
from tests.testing.test_trace import ALLOWED


def record(event: str, at: float, **details: Any) -> dict[str, Any]:
    told = {
        "host": "a", "actor": "account/s:alice", "activation": 1, "loaded": 3, "unit": "u",
        "lease": "x", "epoch": 1,
    }  # fmt: skip
    return {"event": event, "at": at, **told, **details}


def turn(at: float, until: float, mode: str = "write", **details: Any) -> dict[str, Any]:
    return record("turn", at, until=until, mode=mode, **{"lost": False, **details})


def commit(at: float, revision: int, **details: Any) -> dict[str, Any]:
    return record("commit", at, revision=revision, **details)


def output(at: float, revision: int, **details: Any) -> dict[str, Any]:
    return record("output", at, revision=revision, **details)


def test_turns_commits_and_outputs_in_their_order_pass() -> None:
    check_turns([
        turn(1, 2), turn(2, 3), turn(1.2, 1.4, "interleave"), output(1.1, 3), commit(2.5, 4),
        output(2.6, 4), turn(3, 5, "read"), turn(3.5, 4, "read"), turn(5, 6),
        turn(6, 9, lost=True), turn(7, 8, activation=2, loaded=4),
        output(8, 4, activation=2, loaded=4),
        turn(6, 9, host="b", epoch=2), turn(1, 9, actor="account/s:bob"),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([turn(1, 3), turn(2, 4)], "I11"),
        ([turn(1, 3, "read"), turn(2, 4)], "I11"),
        ([turn(1, 9), turn(2, 3, "interleave"), turn(4, 5, "read")], "I11"),
        ([turn(1, 9, "read"), turn(2, 3, "read"), turn(4, 5)], "I11"),
        ([turn(1, 3), turn(2, 4, activation=2)], "I9"),
        ([turn(1, 2), turn(5, 6), turn(3, 4, activation=2)], "I9"),
        ([turn(1, 2), turn(3, 4, host="b")], "I9"),
        ([output(1, 4), commit(2, 4)], "I24"),
        ([commit(1, 4), output(2, 5)], "I24"),
        ([commit(1, 4, host="b"), output(2, 4)], "I24"),
    ],
)
def test_a_violation_is_seen(records: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(Violation, match=message):
        check_turns(records)


def test_an_output_after_one_of_a_younger_epoch_is_seen() -> None:
    left = [output(3, 3, epoch=1), output(2, 3, host="b", epoch=2)]
    with pytest.raises(Violation, match="I3"):
        check_invariants(ALLOWED, outputs(left))
    check_invariants(ALLOWED, outputs(left[:1]))
