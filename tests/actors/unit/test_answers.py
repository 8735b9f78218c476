"""Errors as answers and answers as errors."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from relevo import errors
from relevo.actors.calls.answers import answer_of_error, error_id_of, error_of, raised_by_method
from relevo.actors.core.calls import Answer, MovedTo, Raised, Refused
from relevo.errors import ActorError, RelevoError
from tests.actors.unit.bank import Account, Frozen, InsufficientFunds, Unnamed, interfaces

WITHDRAW = interfaces().of(Account).method("withdraw")
DEPOSIT = interfaces().of(Account).method("deposit")
NOT_EXECUTED = {
    "Moved", "NoHost", "MailboxFull", "Overloaded", "ActivationFailed", "StatePoisoned",
    "ReentrancyRefused", "ReentrancyTooDeep", "ReentrantActivation",
    "DeadlockDetected", "CallIdReused", "UnknownMethod", "BadArguments", "Dropped", "StateTooNew",
}  # fmt: skip
EXECUTED = {
    "RemoteError", "MethodRaised", "TurnTimeout", "CommitFailed", "OutsideTurn", "ReadOnlyTurn",
}  # fmt: skip
UNKNOWN = {"OutcomeUnknown", "ActivationLost", "PoisonCall", "DeadlineExceeded"}


def over_the_wire(error: BaseException, method: Any = WITHDRAW) -> Exception:
    sent: Answer = answer_of_error(error, method)
    got: Answer = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Answer)
    assert got == sent
    return error_of(got, method)


def made(name: str) -> RelevoError:
    kind = getattr(errors, name)
    error: RelevoError = kind("KeyError", "'x'") if name == "RemoteError" else kind("it failed")
    return error


@pytest.mark.parametrize("name", sorted(NOT_EXECUTED | EXECUTED | UNKNOWN))
def test_every_error_of_actors_arrives_as_itself(name: str) -> None:  # I31
    error = made(name)
    expected = False if name in NOT_EXECUTED else True if name in EXECUTED else None
    assert error.executed is expected  # type: ignore[attr-defined]
    got = over_the_wire(error)
    assert type(got) is type(error)
    assert got.executed is expected  # type: ignore[attr-defined]
    assert str(got) == str(error) or name == "Moved"


def test_the_lists_above_name_every_error_of_actors() -> None:
    named = {
        name for name in errors.__all__
        if isinstance(kind := getattr(errors, name), type) and issubclass(kind, ActorError)
    }  # fmt: skip
    assert named - {"ActorError"} == (NOT_EXECUTED | EXECUTED | UNKNOWN) - {
        "Overloaded", "OutcomeUnknown",
    }  # fmt: skip


def test_codes_are_unique() -> None:
    kinds = [
        kind for name in errors.__all__
        if isinstance(kind := getattr(errors, name), type) and issubclass(kind, RelevoError)
        and kind not in (errors.RelevoError, errors.SystemFault)
    ]  # fmt: skip
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_details_of_errors_travel() -> None:
    full = over_the_wire(errors.MailboxFull("full", retry_after=0.25))
    assert isinstance(full, errors.MailboxFull)
    assert full.retry_after == 0.25
    late = over_the_wire(errors.DeadlineExceeded("late", executed=False))
    assert isinstance(late, errors.DeadlineExceeded)
    assert late.executed is False
    moved = answer_of_error(errors.Moved("gone", epoch=7, address="b:1", pause=0.5), None)
    assert moved == MovedTo(7, "b:1", 0.5)


def test_declared_errors_arrive_as_themselves() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    got = over_the_wire(InsufficientFunds(Decimal("1.50"), at))
    assert isinstance(got, InsufficientFunds)
    assert (got.missing, got.at, str(got)) == (Decimal("1.50"), at, "1.50 are missing")
    unnamed = over_the_wire(Unnamed(Decimal(3)))
    assert isinstance(unnamed, Unnamed)
    assert (unnamed.amount, unnamed.args) == (Decimal(3), (Decimal(3),))
    frozen = over_the_wire(Frozen(UUID(int=3), "court"))
    assert isinstance(frozen, Frozen)
    assert (frozen.account, frozen.reason) == (UUID(int=3), "court")


def test_an_error_below_a_declared_one_arrives_as_the_declared_one() -> None:
    class Overdrawn(InsufficientFunds):
        pass

    got = over_the_wire(Overdrawn(Decimal(1)))
    assert type(got) is InsufficientFunds
    assert any("Overdrawn" in note for note in got.__notes__)


def test_attributes_that_cannot_travel_are_named() -> None:
    error = InsufficientFunds(Decimal(1))
    error.connection = object()  # type: ignore[attr-defined]
    got = over_the_wire(error)
    assert type(got) is InsufficientFunds
    assert not hasattr(got, "connection")
    assert any("connection" in note for note in got.__notes__)


def test_an_undeclared_error_becomes_a_remote_error_with_its_trace() -> None:
    try:
        raise KeyError("order 7")
    except KeyError as error:
        number = error_id_of(error)
        got = over_the_wire(error, DEPOSIT)
        quiet = answer_of_error(error, DEPOSIT, with_trace=False)
    assert isinstance(got, errors.RemoteError)
    assert (got.type_name, got.remote_message, got.error_id) == ("KeyError", "'order 7'", number)
    assert got.executed is True
    assert any('raise KeyError("order 7")' in note for note in got.__notes__)
    assert isinstance(quiet, Refused)
    assert quiet.trace == ""


def test_what_ends_processes_and_tasks_never_crosses_as_itself() -> None:
    import asyncio

    for error in (KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), GeneratorExit()):
        got = over_the_wire(error)
        assert isinstance(got, errors.RemoteError)
        assert got.type_name == type(error).__name__


def test_an_error_of_a_nested_call_says_nothing_about_the_outer_one() -> None:  # I27
    nested = over_the_wire(errors.MailboxFull("of another actor"))
    got = over_the_wire(nested)
    assert isinstance(got, errors.RemoteError)
    assert (got.type_name, got.executed) == ("MailboxFull", True)
    raised = over_the_wire(raised_by_method(errors.HostFenced("a database of the method")))
    assert isinstance(raised, errors.RemoteError)


def test_unknown_codes_and_errors_of_newer_code_are_still_errors() -> None:
    unknown = error_of(Refused("of_tomorrow", "new", executed=False), DEPOSIT)
    assert type(unknown) is ActorError
    assert unknown.executed is False
    assert "of_tomorrow" in str(unknown)
    raised = error_of(Raised("Unheard", b"\x90", "gone"), DEPOSIT)
    assert isinstance(raised, errors.RemoteError)
    broken = error_of(Raised("InsufficientFunds", b"\xc1", "gone"), WITHDRAW)
    assert isinstance(broken, errors.RemoteError)


def test_an_error_that_cannot_be_shown_still_travels() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    got = over_the_wire(Mute())
    assert isinstance(got, errors.RemoteError)
    assert got.type_name == "Mute"
