"""One error tree, rendered by each surface in its own way."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from relevo import errors
from relevo.http import answers, v1
from relevo.http.answers import HeadersTooLarge, Problem, RequestTimeout, UrlTooLong
from relevo.http.request import head_of
from relevo.router.http import surface as routing

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.RelevoError)
] + [HeadersTooLarge, RequestTimeout, UrlTooLong]


def speaks(kind: type[errors.RelevoError]) -> bool:
    return kind.fault == "caller" or issubclass(kind, errors.Overloaded)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_a_problem(kind: type[errors.RelevoError]) -> None:
    answer = v1.SURFACE.render(kind("what exactly happened"), "abc")
    shown = msgspec.json.decode(answer.body, type=Problem)
    assert dict(answer.headers)[b"content-type"] == b"application/problem+json"
    assert answer.status == shown.status == kind.status
    assert shown.type == f"urn:relevo:problem:{kind.code}"
    assert shown.code == kind.code
    assert shown.instance == "urn:relevo:request:abc"
    assert shown.retryable == kind.retryable
    # Only the caller's own faults, and which bound was reached, are told in their own words.
    assert ("what exactly happened" in shown.detail) == speaks(kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_the_ancestors_envelope_under_its_prefix(
    kind: type[errors.RelevoError],
) -> None:
    answer = routing.SURFACE.render(kind("what exactly happened"), "abc")
    shown = msgspec.json.decode(answer.body)["error"]
    assert answer.status == kind.status
    assert dict(answer.headers)[b"x-ms-error-code"] == shown["code"].encode()
    assert shown["message"]
    assert ("what exactly happened" in shown["message"]) == speaks(kind)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.Unauthenticated, "Denied"),
        (errors.Forbidden, "Forbidden"),
        (errors.NotFound, "NotFound"),
        (errors.MethodNotAllowed, "MethodNotAllowed"),
        (errors.InvalidValue, "InvalidValue"),
        (errors.InvalidJson, "InvalidJson"),
        (errors.MissingField, "MissingField"),
        (errors.ReferenceNotFound, "ReferenceNotFound"),
        (errors.InvalidExpression, "InvalidExpression"),
        (errors.InUse, "InUse"),
        (errors.InvalidState, "InvalidState"),
        (errors.OfferGone, "OfferGone"),
        (errors.UnassignLimitReached, "UnassignLimitReached"),
        (errors.LeaseLost, "Conflict"),
        (errors.ConditionNotMet, "ConditionNotMet"),
        (errors.TooLarge, "RequestTooLarge"),
        (UrlTooLong, "RequestTooLarge"),
        (errors.UnsupportedMediaType, "UnsupportedMediaType"),
        (errors.RateLimited, "ThrottleLimitExceeded"),
        (errors.Overloaded, "ServiceUnavailable"),
        (errors.OutcomeUnknown, "ServiceUnavailable"),
        (errors.InternalError, "InternalError"),
    ],
)
def test_the_ancestors_codes(kind: type[errors.RelevoError], code: str) -> None:
    assert routing.code_of(kind) == code


def test_retry_after_only_where_it_is_worth_it() -> None:
    """job-router.md 2.6: the client repeats whatever carries the header."""
    assert answers.retry_after(errors.RateLimited("x", retry_after=0.2)) == (
        (b"retry-after", b"1"),
    )
    assert answers.retry_after(errors.RateLimited("x", retry_after=2.1)) == (
        (b"retry-after", b"3"),
    )
    for kind in KINDS:
        assert bool(answers.retry_after(kind("x"))) == (
            issubclass(kind, errors.Unavailable | errors.RateLimited | errors.IdempotencyKeyInUse)
        )


def test_a_pointer_is_told_by_both() -> None:
    error = errors.InvalidValue("bad", pointer="/a/0")
    assert msgspec.json.decode(answers.render(error, "1").body)["pointer"] == "/a/0"
    assert msgspec.json.decode(routing.render(error, "1").body)["error"]["target"] == "/a/0"


def test_foreign_exceptions_are_internal_errors_without_their_text() -> None:
    shown = answers.public(ValueError("secret table"))
    answer = answers.render(shown, "1")
    assert answer.status == 500
    assert b"secret" not in answer.body


@pytest.mark.parametrize("echo", [True, False])
def test_the_ancestors_headers(echo: bool) -> None:
    sent = [(b"x-ms-client-request-id", b"mine")]
    if echo:
        sent.append((b"x-ms-return-client-request-id", b"true"))
    head = head_of({"method": "GET", "raw_path": b"/routing/jobs", "headers": sent})
    headers = dict(routing.SURFACE.headers(head, "abc"))
    assert headers[b"x-ms-request-id"] == headers[b"x-request-id"] == b"abc"
    assert b"2023-11-01" in headers[b"api-supported-versions"]
    assert headers.get(b"x-ms-client-request-id") == (b"mine" if echo else None)
