"""From path, query and body to a command."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from relevo.errors import InvalidJson, InvalidValue, UnsupportedMediaType
from relevo.http.request import command_of, head_of, request_of
from relevo.http.routes import Routes
from relevo.kernel.decoding import explain
from relevo.kernel.operation import PUBLIC, Method, Operation


class Inner(Struct, frozen=True, forbid_unknown_fields=True):
    depth: int = 0


class Command(Struct, frozen=True, kw_only=True):
    id: str
    number: int | None = None
    limit: Annotated[int, Meta(ge=1, le=10)] = 5
    flag: bool = False
    at: Annotated[datetime, Meta(tz=True)] | None = None
    tags: tuple[str, ...] = ()
    inner: Inner = Inner()


async def handler(*_: Any) -> None: ...


def op(method: Method, path: str = "/x/{id}") -> Operation:
    return Operation(
        name="x",
        method=method,
        path=path,
        summary="Test.",
        request=Command,
        response=None,
        permission=PUBLIC,
        handler=handler,
    )


def decode(
    method: Method,
    *,
    query: str = "",
    body: bytes = b"",
    content_type: str | None = "application/json",
    strict: bool = True,
    path: str = "/x/{id}",
    parameters: dict[str, str] | None = None,
) -> Command:
    headers = [] if content_type is None else [(b"Content-Type", content_type.encode())]
    scope = {
        "method": method,
        "raw_path": b"/x/1",
        "query_string": query.encode(),
        "headers": headers,
    }
    given_parameters = {"id": "1"} if parameters is None else parameters
    command = command_of(op(method, path), given_parameters, head_of(scope), body, strict=strict)
    assert isinstance(command, Command)
    return command


def refused(method: Method, **request: Any) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        decode(method, **request)
    return caught.value


def test_a_query_is_coerced() -> None:
    command = decode(
        "GET", query="limit=7&flag=true&tags=a&tags=b&at=2026-01-01T00:00:00%2B01:00&number=3"
    )
    assert (command.limit, command.flag, command.tags, command.number) == (7, True, ("a", "b"), 3)
    assert command.at is not None


def test_a_body_is_not_coerced() -> None:
    assert decode("POST", body=b'{"limit": 7}').limit == 7
    assert refused("POST", body=b'{"limit": "7"}').pointer == "/limit"


@pytest.mark.parametrize("body", [b"", b"{}"])
@pytest.mark.parametrize(
    "content_type", [None, "application/json", "application/json; charset=utf-8"]
)
def test_no_body_is_an_empty_one(body: bytes, content_type: str | None) -> None:
    assert decode("POST", body=body, content_type=content_type) == Command(id="1")


@pytest.mark.parametrize(
    ("request_", "pointer", "text"),
    [
        ({"query": "limt=1"}, "/limt", "did you mean 'limit'"),
        ({"query": "zzz=1"}, "/zzz", "it takes"),
        ({"query": "id=2"}, "/id", "unknown field 'id'"),
        ({"query": "limit=11"}, "/limit", "<= 10"),
        ({"query": "limit=1&limit=2"}, "/limit", "given twice"),
        ({"query": "at=2026-01-01T00:00:00"}, "/at", "timezone"),
        ({"query": "tags=%00"}, "/tags", "U+0000"),
        ({"query": "tags=%ff"}, None, "UTF-8"),
        ({"body": b"{}"}, None, "takes no body"),
        ({"parameters": {"id": "a\0b"}}, "/id", "U+0000"),
        ({"parameters": {"id": "a\udcffb"}}, "/id", "UTF-8"),
    ],
)
def test_a_wrong_query_is_refused_with_a_pointer(
    request_: dict[str, Any], pointer: str | None, text: str
) -> None:
    error = refused("GET", **request_)
    assert error.pointer == pointer
    assert text in error.message


@pytest.mark.parametrize(
    ("body", "pointer", "text"),
    [
        (b'{"limt": 1}', "/limt", "did you mean 'limit'"),
        (b'{"id": "2"}', "/id", "unknown field 'id'"),
        (b'{"a/b~c": 1}', "/a~1b~0c", "unknown field"),
        (b'{"limit": 0}', "/limit", ">= 1"),
        (b'{"tags": ["a", 2]}', "/tags/1", "Expected `str`"),
        (b'{"inner": {"dpth": 1}}', "/inner/dpth", "unknown field `dpth`"),
        (b'{"inner": {"depth": "x"}}', "/inner/depth", "Expected `int`"),
        (b'{"tags": ["a\\u0000"]}', "/tags/0", "U+0000"),
        (b"[]", None, "an array"),
        (b'"x"', None, "a string"),
        (b"null", None, "null"),
        (b"1", None, "a number"),
        (b"true", None, "a boolean"),
    ],
)
def test_a_wrong_body_is_refused_with_a_pointer(
    body: bytes, pointer: str | None, text: str
) -> None:
    error = refused("POST", body=body)
    assert error.pointer == pointer
    assert text in error.message


def test_a_query_beside_a_body_is_refused() -> None:
    assert refused("POST", query="limit=1", body=b"{}").pointer == "/limit"


def test_an_escaped_backslash_is_not_a_nul() -> None:
    assert decode("POST", body=b'{"tags": ["\\\\u0000"]}').tags == ("\\u0000",)


@pytest.mark.parametrize(
    "body",
    [b"{", b"nope", b"\xff", b'{"a": "\xff"}', b"[" * 200_000, b'{"tags": ["\\ud800"]}', b"{}x"],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    assert isinstance(refused("POST", body=body), InvalidJson)


def test_another_media_type_is_refused() -> None:
    with pytest.raises(UnsupportedMediaType, match="application/json"):
        decode("POST", body=b"a=1", content_type="application/x-www-form-urlencoded")


def test_a_lenient_surface_ignores_what_it_does_not_know() -> None:
    assert decode("GET", query="zzz=1&limit=2&limit=3", strict=False).limit == 3
    assert decode("POST", query="zzz=1", body=b'{"zzz": 1, "id": "2"}', strict=False).id == "1"
    assert decode("GET", body=b"ignored", strict=False).id == "1"


def test_a_missing_field_has_a_pointer() -> None:
    assert refused("POST", body=b"{}", path="/x", parameters={}).pointer == "/id"


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_beyond_the_calendar_is_refused(at: str) -> None:
    error = refused("POST", body=json.dumps({"at": at}).encode())
    assert (error.pointer, error.message) == ("/at", "this time is out of range")
    assert decode("POST", body=b'{"at": "0001-01-01T00:00:00Z"}').at is not None


@pytest.mark.parametrize("where", ["top", "nested"])
def test_little_is_repeated_of_what_was_sent(where: str) -> None:
    name = "x" * 500_000
    body = {name: 1} if where == "top" else {"inner": {name: 1}}
    error = refused("POST", body=json.dumps(body).encode())
    assert len(error.message) < 400
    assert len(error.pointer or "") < 200


class Flat(Struct, frozen=True, kw_only=True):
    id: str
    number: int | None = None
    flag: bool = False
    at: Annotated[datetime, Meta(tz=True)] | None = None
    tags: tuple[str, ...] = ()


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(deadline=None)
@given(
    command=st.builds(
        Flat,
        id=texts.filter(bool),
        number=st.none() | st.integers(-(2**60), 2**60),
        flag=st.booleans(),
        at=st.none() | st.datetimes(timezones=st.just(UTC)),
        tags=st.lists(texts).map(tuple),
    ),
    method=st.sampled_from(["GET", "POST"]),
)
def test_what_a_client_sends_becomes_the_same_command(command: Flat, method: Method) -> None:
    operation = msgspec.structs.replace(op(method), request=Flat)
    target, body = request_of(operation, command)
    path, _, query = target.partition("?")
    scope = {"method": method, "raw_path": path.encode(), "query_string": query.encode()}
    head = head_of({**scope, "headers": [(b"content-type", b"application/json")]})
    found = Routes([operation]).find(method, head.segments)
    assert command_of(operation, found.parameters, head, body, strict=True) == command


def test_an_empty_value_cannot_travel_in_a_path() -> None:
    with pytest.raises(InvalidValue, match="id may not be empty"):
        request_of(op("GET"), Command(id=""))


def test_messages_of_the_decoder_become_pointers() -> None:
    assert explain("Expected `int`, got `str` - at `$.a[0].b`") == (
        "Expected `int`, got `str`",
        "/a/0/b",
    )
    assert explain("Object missing required field `c` - at `$.a`")[1] == "/a/c"


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_query_and_no_body_breaks_the_decoder(data: bytes) -> None:
    for method, request in (("GET", {"query": data.decode("latin-1")}), ("POST", {"body": data})):
        with suppress(InvalidValue, UnsupportedMediaType):
            decode(method, **request)  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_no_json_breaks_the_decoder(value: Any) -> None:
    for field in ("limit", "tags", "inner", "at"):
        with suppress(InvalidValue):
            decode("POST", body=json.dumps({field: value}).encode())
