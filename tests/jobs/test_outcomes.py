"""What an error makes of a job."""

from __future__ import annotations

import asyncio
import pickle
import re
import socket
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo import errors as known
from relevo.jobs.core import codes
from relevo.jobs.core.outcomes import (
    RULES,
    TEXT_MAX,
    JobOutcome,
    classify,
    shortened,
)
from relevo.jobs.core.retry import BACKOFF, RetryPolicy, time_limit_of
from relevo.jobs.errors import JobCanceled, JobPaused, LoopDetected, RecordMissing
from relevo.kernel.backoff import Backoff
from relevo.kernel.running import wire
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend


class SerializationError(Exception):
    """As a driver names it."""


class WithState(Exception):
    """As drivers tell the state of SQL."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class WithStatus(Exception):
    """As some HTTP clients tell the status of an answer."""

    def __init__(self, **told: Any) -> None:
        super().__init__("answer")
        self.__dict__.update(told)


class TransportError(Exception):
    """As a client names a broken connection."""


def outcome(error: BaseException, **told: Any) -> JobOutcome:
    options = {"workflow": False, "retries": 0, "random": Random(1), **told}
    return classify(error, **options)


TABLE = [
    (LoopDetected("too deep"), "fail", "fail", codes.LOOP_DETECTED),
    (RetryLater(), "retry", "retry", None),
    (RetryLater(code=0x80044306), "retry", "retry", codes.REMOTE_FAILED),
    (Suspend("mailbox full"), "suspend", "suspend", None),
    (Suspend("mailbox full", codes.BUSY), "suspend", "suspend", codes.BUSY),
    (Fail(None, "no"), "fail", "fail", codes.HANDLER_REFUSED),
    (Fail(0x80041103, "no"), "fail", "fail", codes.UNKNOWN_COLUMN),
    (known.Overloaded("full"), "retry", "retry", codes.BUSY),
    (known.RateLimited("slow down"), "retry", "retry", codes.BUSY),
    (known.Unavailable("not now"), "retry", "retry", codes.BUSY),
    (known.DatabaseUnavailable("gone"), "retry", "retry", codes.UNEXPECTED),
    (known.OutcomeUnknown("maybe"), "retry", "retry", codes.UNEXPECTED),
    (SerializationError(), "retry", "retry", codes.UNEXPECTED),
    (WithState("40P01"), "retry", "retry", codes.UNEXPECTED),
    (WithState("08006"), "retry", "retry", codes.UNEXPECTED),
    (WithState("23505"), "fail", "fail", codes.HANDLER_FAILED),
    (ConnectionResetError(), "retry", "retry", codes.REMOTE_FAILED),
    (TimeoutError(), "retry", "retry", codes.REMOTE_FAILED),
    (socket.gaierror(), "retry", "retry", codes.REMOTE_FAILED),
    (TransportError(), "retry", "retry", codes.REMOTE_FAILED),
    (known.OutboundFailed("no answer"), "retry", "retry", codes.REMOTE_FAILED),
    (known.OutboundRefused("may not go there"), "fail", "fail", codes.HANDLER_FAILED),
    (WithStatus(status=401), "suspend", "suspend", codes.REMOTE_FAILED),
    (WithStatus(status_code=403), "suspend", "suspend", codes.REMOTE_FAILED),
    (
        WithStatus(response=SimpleNamespace(status_code=403)),
        "suspend",
        "suspend",
        codes.REMOTE_FAILED,
    ),
    (WithStatus(status=500), "retry", "retry", codes.REMOTE_FAILED),
    (WithStatus(response=SimpleNamespace(status=429)), "retry", "retry", codes.REMOTE_FAILED),
    (WithStatus(status="broken"), "fail", "fail", codes.HANDLER_FAILED),
    (known.NotFound("no row"), "fail", "suspend", codes.NOT_FOUND),
    (known.Forbidden("not you"), "fail", "suspend", codes.FORBIDDEN),
    (known.ItemExists("there"), "fail", "suspend", codes.STATE_CHANGED),
    (known.ConditionNotMet("etag"), "fail", "suspend", codes.STALE_ETAG),
    (known.InvalidValue("bad"), "fail", "suspend", codes.BAD_REQUEST),
    (RecordMissing("gone"), "fail", "suspend", codes.RECORD_MISSING),
    (ValueError("x"), "fail", "fail", codes.HANDLER_FAILED),
    (FileNotFoundError("x"), "fail", "fail", codes.HANDLER_FAILED),
    (SystemExit(1), "fail", "fail", codes.HANDLER_FAILED),
    (known.HandlerTimeout("120 s"), "retry", "retry", codes.TIME_LIMIT),
]


@pytest.mark.parametrize(("error", "plugin", "workflow", "code"), TABLE)
def test_each_row_of_the_table(
    error: BaseException, plugin: str, workflow: str, code: int | None
) -> None:
    for lane, event in ((False, plugin), (True, workflow)):
        found = outcome(error, workflow=lane)
        assert (found.event, found.error_code) == (event, code)
        assert (found.delay is not None) == (event == "retry")


def test_the_code_of_a_data_operation_is_the_one_that_it_carries() -> None:
    class Refused(known.Conflict):
        error_code = codes.CANNOT_CANCEL

    assert outcome(Refused("done already"), workflow=True).error_code == codes.CANNOT_CANCEL


@pytest.mark.parametrize(
    ("error", "limit"),
    [(RetryLater(), 4), (ConnectionError(), 10), (known.HandlerTimeout("late"), 2)],
)
def test_attempts_are_limited_by_what_failed(error: BaseException, limit: int) -> None:
    # A15
    events = [outcome(error, retries=retries).event for retries in range(limit + 2)]
    assert events == ["retry"] * (limit - 1) + ["fail"] * 3
    ended = outcome(error, retries=limit)
    assert ended.delay is None
    assert ended.error_code is not None


@pytest.mark.parametrize("error", [RetryLater(), ConnectionError(), ValueError("x")])
@pytest.mark.parametrize("retries", [0, 1, 7])
def test_a_handler_sets_the_number_of_retries_whatever_the_error(
    error: Exception, retries: int
) -> None:  # A15
    policy = RetryPolicy.of("x", retries, None, None)
    events = [outcome(error, retries=n, policy=policy).event for n in range(retries + 1)]
    assert events == ["retry"] * retries + ["fail"]


def test_an_ordinary_exception_is_tried_again_three_times_by_default() -> None:
    found = [outcome(KeyError("x"), retries=n, policy=RetryPolicy()) for n in range(4)]
    assert [one.event for one in found] == ["retry"] * 3 + ["fail"]
    assert {one.error_code for one in found} == {codes.HANDLER_FAILED}
    for error in (Fail(None, "no"), known.NotFound("no row"), SystemExit(1), JobCanceled()):
        assert outcome(error, policy=RetryPolicy()).event == "fail"


def test_a_handler_names_the_exceptions_that_are_worth_a_retry() -> None:
    only = RetryPolicy.of("x", None, None, (KeyError, known.NotFound))
    assert outcome(KeyError("x"), policy=only).event == "retry"
    assert outcome(ValueError("x"), policy=only).event == "fail"
    assert outcome(known.NotFound("no row"), policy=only).event == "retry"
    assert outcome(Fail(None, "no"), policy=only).event == "fail"
    assert outcome(ConnectionError(), policy=only).event == "retry"  # of the network, always
    refused = WithStatus(status=401)
    assert outcome(refused, policy=RetryPolicy.of("x", 2, 1, WithStatus)).event == "retry"


def test_exceptions_of_a_process_are_known_by_their_names() -> None:
    only = RetryPolicy.of("x", None, None, (LookupError, TransportError))
    for error, event in (
        (KeyError("x"), "retry"), (TransportError(), "retry"), (ValueError("x"), "fail")
    ):  # fmt: skip
        assert outcome(wire.heard(wire.error_fields(error)), policy=only).event == event


def test_a_handler_sets_the_waits() -> None:
    steady = Backoff(first=2, factor=1, jitter=(1, 1))
    policy = RetryPolicy.of("x", 5, steady, None)
    assert [outcome(OSError(), retries=n, policy=policy).delay for n in range(4)] == [2.0] * 4
    short = RetryPolicy.of("x", 5, 1.5, None)
    delay = outcome(OSError(), retries=2, policy=short).delay
    assert delay is not None
    assert 0.8 * 6 <= delay <= 1.2 * 6
    assert outcome(RetryLater(9), policy=policy).delay == 9


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ((-1, None, None), "retries=-1; give a number from 0"),
        ((True, None, None), "retries=True"),
        ((1.5, None, None), "retries=1.5"),
        ((None, -3, None), "backoff=-3; give the seconds before the first retry"),
        ((None, "1m", None), "backoff='1m'"),
        ((None, None, "KeyError"), "retry_on='KeyError'; give an exception class"),
        ((None, None, (KeyError, int)), "retry_on="),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: Any, says: str) -> None:
    with pytest.raises(known.InvalidValue, match=re.escape(f"handler 'mail' has {says}")):
        RetryPolicy.of("handler 'mail'", *policy)


@pytest.mark.parametrize("timeout", [0, -1, "5", float("nan"), True, timedelta(0)])
def test_a_time_limit_is_a_time(timeout: Any) -> None:
    with pytest.raises(known.InvalidValue, match="timeout="):
        time_limit_of("handler 'mail'", timeout)
    assert time_limit_of("handler 'mail'", timedelta(minutes=2)) == 120


@given(st.lists(st.sampled_from([RetryLater(), OSError(), ConnectionError(), WithState("40001")])))
def test_a_job_is_not_tried_more_often_than_its_last_error_allows(errors: list[Exception]) -> None:
    # A15: retries are at most attempts - 1, attempts at most the limit of the error's kind.
    retries = 0
    for attempts, error in enumerate(errors, 1):
        assert retries <= attempts - 1
        limit = 4 if isinstance(error, RetryLater) else 10
        found = outcome(error, retries=retries)
        if found.event == "fail":
            assert attempts >= limit or type(error) is OSError
            break
        assert found.event == "retry"
        assert attempts < limit
        retries = attempts


@given(st.integers(0, 10_000), st.integers())
def test_waits_double_up_to_an_hour_a_fifth_more_or_less(retries: int, seed: int) -> None:
    usual = min(3_600, 30 * 2**retries)
    assert 0.8 * usual <= BACKOFF.delay(retries, Random(seed)) <= 1.2 * usual


def test_a_delay_is_as_the_handler_asks() -> None:
    assert outcome(RetryLater(5)).delay == 5
    assert outcome(RetryLater(timedelta(minutes=2)), retries=2).delay == 120
    assert outcome(known.RateLimited("wait", retry_after=90_000.0)).delay == 90_000


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_delay_is_a_time_from_now_on(delay: Any) -> None:
    with pytest.raises(known.InvalidValue, match="delay"):
        RetryLater(delay)


@pytest.mark.parametrize("code", [0, 5, 2**31 - 1, 2**32, -(2**31) - 1])
def test_codes_of_verdicts_are_codes(code: int) -> None:
    with pytest.raises(known.InvalidValue, match=r"code"):
        Fail(code, "x")


def test_people_get_the_text_of_the_handler_and_nothing_else() -> None:
    assert outcome(Fail(None, "no such customer")).friendly == "no such customer"
    assert outcome(Suspend("mailbox full")).friendly == "mailbox full"
    assert outcome(RetryLater(text="try at night")).friendly == "try at night"
    assert outcome(RetryLater()).friendly is None
    assert outcome(Fail(None, 5)).friendly == "5"  # type: ignore[arg-type]
    assert outcome(known.NotFound("no row 5")).friendly is None


def test_the_message_is_the_trace() -> None:
    def handler() -> None:
        raise ValueError("seven")

    with pytest.raises(ValueError, match="seven") as caught:
        handler()
    message = outcome(caught.value).message
    assert message is not None
    assert "in handler" in message
    assert message.endswith("ValueError: seven\n")


@given(st.integers(TEXT_MAX - 3, TEXT_MAX + 200))
def test_a_long_text_is_cut_in_its_middle_and_says_so(length: int) -> None:
    found = shortened("a" + "x" * (length - 2) + "z")
    assert len(found) <= TEXT_MAX
    assert (found[0], found[-1]) == ("a", "z")
    assert ("left out" in found) == (length > TEXT_MAX)


def test_a_text_can_be_stored_whatever_is_in_it() -> None:
    assert shortened("a\0b\ud800ñ") == "a\\x00b\\ud800ñ"
    message = outcome(ValueError("\0\udfff")).message
    assert message is not None
    message.encode()
    assert "\0" not in message


def test_a_cancel_that_was_asked_for_stops_a_job_and_another_one_fails_it() -> None:
    for error in (JobCanceled(), asyncio.CancelledError()):
        assert outcome(error, canceling=True) == JobOutcome(event="stop")
        assert outcome(error).event == "fail"
    assert outcome(JobPaused()) == JobOutcome(event="yield")


def test_of_several_errors_the_most_serious_decides() -> None:
    stopped: list[Exception] = [JobCanceled()]
    assert outcome(ExceptionGroup("all", stopped), canceling=True).event == "stop"
    mixed = ExceptionGroup("all", [*stopped, ExceptionGroup("in", [RetryLater()])])
    assert outcome(mixed, canceling=True).event == "retry"
    several = ExceptionGroup("all", [mixed, Suspend("look"), Fail(None, "no")])
    worse = outcome(several, canceling=True)
    assert (worse.event, worse.friendly) == ("fail", "no")
    assert worse.message is not None
    assert "look" in worse.message


def test_an_error_that_wraps_one_of_a_handler_counts_as_that_one() -> None:
    wrapped = known.HandlerError("the handler raised")
    wrapped.__cause__ = RetryLater(7)
    assert outcome(wrapped).delay == 7
    assert outcome(known.HandlerError("bare")).event == "fail"


def test_verdicts_travel_between_processes() -> None:
    for verdict in (RetryLater(5, codes.BUSY, "x"), Suspend("y"), Fail(0x80044306, "z")):
        again = pickle.loads(pickle.dumps(verdict))
        assert (type(again), vars(again), str(again)) == (
            type(verdict),
            vars(verdict),
            str(verdict),
        )
    assert str(RetryLater()) == "RetryLater"
    assert isinstance(pickle.loads(pickle.dumps(LoopDetected("deep"))), LoopDetected)


@given(st.sampled_from([one for one, *_ in TABLE]), st.booleans(), st.integers(0, 12))
def test_every_outcome_fits_the_columns(error: BaseException, workflow: bool, tried: int) -> None:
    found = outcome(error, workflow=workflow, retries=tried)
    assert found.error_code is None or -(2**31) <= found.error_code < 0
    assert found.message
    assert len(found.message) <= TEXT_MAX
    assert found.event != "fail" or found.error_code is not None


def test_the_last_rule_fits_everything() -> None:
    assert RULES[-1].fits(BaseException())
