"""Where the fields of a command come from: path, query, headers, the body as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct, field

from relevo.errors import InvalidJson, InvalidValue, MissingField, UnsupportedMediaType
from relevo.http.request import command_of, head_of, request_of
from relevo.http.routes import Routes
from relevo.kernel.operation import Operation


class Options(Struct, frozen=True):
    note: str = ""
    count: int = 0


class Act(Struct, frozen=True, kw_only=True):
    id: str
    version: str = field(name="api-version", default="none")
    if_match: str | None = None
    options: Options = Options()


class Patch(Struct, frozen=True, kw_only=True):
    id: str
    size: int = 0
    patch: bytes


def op(request: type[Struct], body: str, **more: Any) -> Operation:
    async def handler(*_: Any) -> None:
        """Do nothing."""

    return Operation(
        name="x.act",
        method="POST",
        path="/routing/x/{id}:act",
        summary="Test.",
        request=request,
        response=None,
        permission="hosts:read",
        handler=handler,
        body=body,
        **more,
    )


ACT = op(Act, "options", headers={"if_match": "If-Match"})
RAW = op(Patch, "patch")


def made(operation: Operation, target: str, body: bytes = b"", **headers: str) -> Any:
    raw_path, _, query = target.encode().partition(b"?")
    sent = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    head = head_of({"method": "POST", "raw_path": raw_path, "query_string": query, "headers": sent})
    match = Routes([operation]).find("POST", head.segments)
    return command_of(operation, match.parameters, head, body, strict=False)


def test_each_field_comes_from_its_place() -> None:
    found = made(
        ACT, "/routing/x/1:act?api-version=v&if_match=no", b'{"count": 2, "new": 1}', If_Match='"a"'
    )
    assert found == Act(id="1", version="v", if_match='"a"', options=Options(count=2))


@pytest.mark.parametrize(
    "headers", [{}, {"Content_Type": "application/json"}, {"Content_Type": "x/y"}]
)
def test_no_body_is_an_empty_one_whatever_its_type(headers: dict[str, str]) -> None:
    assert made(ACT, "/routing/x/1:act", b"", **headers) == Act(id="1")


def test_a_header_that_comes_twice_is_a_list() -> None:
    head = head_of(
        {
            "method": "POST",
            "raw_path": b"/routing/x/1:act",
            "headers": [(b"If-Match", b'"a"'), (b"if-match", b'"b"')],
        }
    )
    assert command_of(ACT, {"id": "1"}, head, b"", strict=False).if_match == '"a", "b"'


def test_the_body_is_converted_strictly_and_the_query_is_not() -> None:
    assert made(RAW, "/routing/x/1:act?size=5", b"[").size == 5
    with pytest.raises(InvalidValue) as caught:
        made(ACT, "/routing/x/1:act", b'{"count": "2"}')
    assert caught.value.pointer == "/count"


def test_a_raw_body_is_as_it_came() -> None:
    assert made(RAW, "/routing/x/1:act", b"{ not JSON").patch == b"{ not JSON"
    with pytest.raises(UnsupportedMediaType):
        made(RAW, "/routing/x/1:act", b"{}", Content_Type="text/plain")
    with pytest.raises(InvalidJson):
        made(ACT, "/routing/x/1:act", b"{ not JSON")


def test_a_field_that_has_to_be_there_is_missed() -> None:
    needed = op(Patch, "patch")
    with pytest.raises(MissingField) as caught:
        command_of(
            Operation(
                **{**{n: getattr(needed, n) for n in needed.__struct_fields__}, "body": None}
            ),
            {"id": "1"},
            head_of({"method": "POST", "raw_path": b"/routing/x/1:act", "headers": ()}),
            b"",
            strict=False,
        )
    assert caught.value.pointer == "/patch"


def test_what_a_client_sends_is_what_it_meant() -> None:
    for operation, command in (
        (ACT, Act(id="a/b", version="v", options=Options("n", 3))),
        (RAW, Patch(id="x", size=4, patch=b'{"a": 1}')),
    ):
        target, body = request_of(operation, command)
        assert made(operation, target, body) == command


@pytest.mark.parametrize(
    "change", [{"body": "nope"}, {"headers": {"nope": "X"}}, {"fixed": {"no": 1}}]
)
def test_a_place_that_is_no_field_is_noticed_when_it_is_written(change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        op(Act, **{"body": "options", **change})
