"""A checker that cannot fail proves nothing: each violation is shown to be seen."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from relevo.testing.trace import Act, OwnerChange, Violation, check_invariants

A, B = uuid4(), uuid4()


def change(
    seq: int, old: UUID | None, new: UUID | None, old_epoch: int, epoch: int, strict: bool = True
) -> OwnerChange:
    return OwnerChange(
        seq=seq, lease_id=1, unit="u", name="x", strict=strict,
        old_owner=old, owner=new, old_epoch=old_epoch, epoch=epoch,
    )  # fmt: skip


def act(at: float, host: str, epoch: int) -> Act:
    return Act(at=at, host=host, unit="u", lease="x", epoch=epoch)


ALLOWED = [change(1, None, A, 0, 1), change(2, A, B, 1, 2), change(3, B, None, 2, 3)]


def test_an_allowed_history_passes() -> None:
    check_invariants(ALLOWED, [act(1, "a", 1), act(2, "b", 2), act(3, "b", 2)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([change(1, None, A, 0, 0)], "L1"),
        ([change(1, None, A, 0, 2), change(2, A, B, 2, 1)], "L1"),
        ([change(1, None, A, 0, 1), change(2, A, B, 2, 3)], "I2"),
        ([change(1, None, A, 0, 1), change(2, B, A, 1, 2)], "L1"),
    ],
    ids=["same epoch", "epoch falls", "epoch jumps unseen", "owner changes unseen"],
)
def test_a_forbidden_history_is_seen(changes: list[OwnerChange], message: str) -> None:
    with pytest.raises(Violation, match=message):
        check_invariants(changes)


def test_a_zombies_act_is_seen_in_a_strict_unit_only() -> None:
    acted = [act(1, "a", 1), act(2, "b", 2), act(3, "a", 1)]
    with pytest.raises(Violation, match="I3"):
        check_invariants(ALLOWED, acted)
    lenient = [change(1, None, A, 0, 1, strict=False), change(2, A, B, 1, 2, strict=False)]
    check_invariants(lenient, acted)


def test_an_act_under_an_epoch_nobody_was_given_is_seen() -> None:
    with pytest.raises(Violation, match="L2"):
        check_invariants(ALLOWED, [act(1, "a", 3)])
