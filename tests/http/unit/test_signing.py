"""The request signature, against a second writing of the client's part (job-router.md 3.1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.errors import Unauthenticated
from relevo.http.access import signing
from relevo.http.request import Head, head_of

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KEY = b"k" * 32
OTHER = b"o" * 32
SKEW = 900.0


def client_headers(
    key: bytes, method: str, target: str, host: str, body: bytes, now: datetime = NOW
) -> dict[str, str]:
    """What the official client sends, written down from the specification alone."""
    content = base64.b64encode(hashlib.sha256(body).digest()).decode()
    date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    text = f"{method}\n{target}\n{date};{host};{content}"
    signature = base64.b64encode(hmac.new(key, text.encode(), "sha256").digest()).decode()
    return {
        "host": host,
        "x-ms-date": date,
        "x-ms-content-sha256": content,
        "authorization": "HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature="
        + signature,
    }


def head(method: str, target: str, headers: dict[str, str]) -> Head:
    path, _, query = target.partition("?")
    return head_of(
        {
            "method": method,
            "raw_path": path.encode(),
            "path": path,
            "query_string": query.encode(),
            "target": target.encode(),
            "headers": [
                (name.encode(), value.encode("latin-1")) for name, value in headers.items()
            ],
        }
    )


def verify(
    request: Head,
    body: bytes = b"",
    *,
    keys: dict[str, bytes] | None = None,
    now: datetime = NOW,
    public_hosts: tuple[bytes, ...] = (),
) -> str:
    authorization = request.value(b"authorization")
    assert authorization is not None
    signature = signing.parse(authorization.removeprefix(b"HMAC-SHA256 "))
    texts = signing.texts_to_sign(signature, request, public_hosts)
    signing.check_date(signature, request, now, SKEW)
    found = signing.match(signature, texts, {"a": KEY} if keys is None else keys)
    if found is None:
        raise Unauthenticated("no key")
    signing.check_body(request, body)
    return found


TARGETS = [
    "/routing/jobs",
    "/routing/workers/8%3Aacs%3A1?api-version=2023-11-01",
    "/routing/workers/8:acs:1?api-version=2023-11-01",
    "/routing/jobs/a%2Fb?maxpagesize=1&token=a/b%2Fc",
    "/routing/jobs?",
    "/routing/jobs/%C3%A9?x=%20+%2B",
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", ["GET", "PATCH", "POST", "DELETE"])
@pytest.mark.parametrize("body", [b"", b'{"a": 1}'])
def test_accepts_what_the_client_sends_over_the_raw_target(
    method: str, target: str, body: bytes
) -> None:
    headers = client_headers(KEY, method, target, "relevo.test:8080", body)
    assert verify(head(method, target, headers), body) == "a"


def test_an_empty_body_has_the_published_hash() -> None:
    assert signing.content_hash(b"") == b"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


def test_the_target_is_not_decoded_and_encoded_again() -> None:
    headers = client_headers(KEY, "GET", "/routing/jobs/a%3Ab", "h", b"")
    with pytest.raises(Unauthenticated):
        verify(head("GET", "/routing/jobs/a:b", headers))


def test_any_of_several_keys_may_have_signed() -> None:
    request = head("GET", "/x", client_headers(OTHER, "GET", "/x", "h", b""))
    assert verify(request, keys={"primary": KEY, "secondary": OTHER}) == "secondary"
    with pytest.raises(Unauthenticated):
        verify(request, keys={"primary": KEY})
    with pytest.raises(Unauthenticated):
        verify(request, keys={})


def test_the_order_and_choice_of_signed_headers_is_the_clients() -> None:
    headers = {
        "host": "h",
        "date": format_datetime(NOW, usegmt=True),
        "x-ms-content-sha256": signing.content_hash(b"").decode(),
        "x-extra": "e",
    }
    names = ["x-extra", "x-ms-content-sha256", "host", "date"]
    text = "GET\n/x\n" + ";".join(headers[name] for name in names)
    signature = base64.b64encode(hmac.new(KEY, text.encode(), "sha256").digest()).decode()
    headers["authorization"] = (
        f"HMAC-SHA256 SignedHeaders={';'.join(names).title()}&Signature={signature}"
    )
    assert verify(head("GET", "/x", headers)) == "a"


@pytest.mark.parametrize("left_out", ["x-ms-date", "host", "x-ms-content-sha256"])
def test_date_host_and_body_must_be_signed(left_out: str) -> None:
    names = [n for n in ("x-ms-date", "host", "x-ms-content-sha256") if n != left_out]
    text = f"SignedHeaders={';'.join(names)}&Signature={'A' * 43}="
    with pytest.raises(Unauthenticated, match=left_out):
        signing.parse(text.encode())


@pytest.mark.parametrize("name", ["x-ms-date", "host", "x-ms-content-sha256"])
def test_a_signed_header_must_be_sent_exactly_once(name: str) -> None:
    headers = client_headers(KEY, "GET", "/x", "h", b"")
    value = headers.pop(name)
    with pytest.raises(Unauthenticated, match=name):
        verify(head("GET", "/x", headers))
    twice = head("GET", "/x", {**headers, name: value})
    twice = Head(
        twice.method,
        twice.target,
        twice.segments,
        twice.query,
        (*twice.headers, (name.encode(), b"x")),
    )
    with pytest.raises(Unauthenticated, match=name):
        verify(twice)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_date_may_be_as_far_off_as_allowed_and_no_further(sign: int) -> None:
    request = head("GET", "/x", client_headers(KEY, "GET", "/x", "h", b""))
    assert verify(request, now=NOW + sign * timedelta(seconds=SKEW)) == "a"
    with pytest.raises(Unauthenticated, match="901 s away"):
        verify(request, now=NOW + sign * timedelta(seconds=SKEW + 1))


@pytest.mark.parametrize(
    "date", ["", "yesterday", "0", "Wed, 15 Nov 2023", "Wed, 99 Nov 2023 10:00:00 GMT", "\xff"]
)
def test_a_date_that_is_none_is_refused(date: str) -> None:
    headers = client_headers(KEY, "GET", "/x", "h", b"") | {"x-ms-date": date}
    with pytest.raises(Unauthenticated, match="is not a date"):
        verify(head("GET", "/x", headers))


def test_a_trailing_slash_of_the_endpoint_is_forgiven() -> None:
    headers = client_headers(KEY, "GET", "/x", "relevo.test:8080/", b"")
    assert verify(head("GET", "/x", headers | {"host": "relevo.test:8080"})) == "a"


def test_a_public_name_may_have_been_signed_behind_a_proxy() -> None:
    for signed in ("public.example", "public.example/"):
        headers = client_headers(KEY, "GET", "/x", signed, b"") | {"host": "10.0.0.7:8080"}
        request = head("GET", "/x", headers)
        assert verify(request, public_hosts=(b"other", b"public.example")) == "a"
        with pytest.raises(Unauthenticated):
            verify(request)


def test_another_body_is_refused() -> None:
    request = head("POST", "/x", client_headers(KEY, "POST", "/x", "h", b"{}"))
    with pytest.raises(Unauthenticated, match="body"):
        verify(request, b"{ }")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"Signature=" + b"A" * 43 + b"=",
        b"SignedHeaders=host&Signature=short",
        b"SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=" + b"A" * 44,
        b"SignedHeaders=&Signature=" + b"A" * 43 + b"=",
        b"SignedHeaders=" + b"a;" * 20 + b"x-ms-date;host;x-ms-content-sha256&Signature="
        b"" + b"A" * 43 + b"=",
    ],
)
def test_malformed_signatures_are_refused(text: bytes) -> None:
    with pytest.raises(Unauthenticated):
        signing.parse(text)


def flip(text: str, position: int) -> str:
    index = position % len(text)
    changed = chr(ord(text[index]) ^ 1)
    return text[:index] + changed + text[index + 1 :]


@settings(deadline=None)
@given(
    what=st.sampled_from(["method", "target", "host", "date", "hash", "signature", "body"]),
    position=st.integers(0, 500),
    target=st.sampled_from(TARGETS),
    body=st.binary(min_size=1, max_size=50),
)
def test_whatever_is_tampered_with_the_request_is_refused(
    what: str, position: int, target: str, body: bytes
) -> None:
    method = "PATCH"
    headers = client_headers(KEY, method, target, "relevo.test:8080", body)
    match what:
        case "method":
            method = flip(method, position)
        case "target":
            target = "/" + flip(target[1:], position)
        case "host":
            headers["host"] = flip(headers["host"], position)
        case "date":
            headers["x-ms-date"] = flip(headers["x-ms-date"], position)
        case "hash":
            headers["x-ms-content-sha256"] = flip(headers["x-ms-content-sha256"], position)
        case "signature":
            start = headers["authorization"].index("Signature=") + len("Signature=")
            old = headers["authorization"]
            headers["authorization"] = old[:start] + flip(old[start:], position)
        case _:
            body = bytes([body[0] ^ 1]) + body[1:]
    with pytest.raises(Unauthenticated):
        verify(head(method, target, headers), body)


@settings(deadline=None)
@given(secret=st.binary(min_size=1, max_size=100), text=st.binary(max_size=200))
def test_only_the_same_key_over_the_same_text_matches(secret: bytes, text: bytes) -> None:
    signature = signing.Signature((), signing.sign(secret, text))
    assert signing.match(signature, (b"else", text), {"k": secret}) == "k"
    assert signing.match(signature, (text + b".",), {"k": secret}) is None
    assert signing.match(signature, (text,), {"k": secret + b"."}) is None


def test_secrets_are_compared_in_constant_time() -> None:
    """The comparison is the library's; an equality on bytes would stop at the first difference."""
    for function in (signing.match, signing.check_body):
        source = inspect.getsource(function)
        assert "hmac.compare_digest" in source
        assert "==" not in source
