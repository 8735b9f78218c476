from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from relevo.errors import MethodNotAllowed, NotFound
from relevo.http.request import split_path
from relevo.http.routes import Routes
from relevo.kernel.operation import PUBLIC, Method, Operation


class ById(Struct, frozen=True):
    id: str = ""
    other: str = ""


async def handler(*_: Any) -> None: ...


def op(method: Method, path: str) -> Operation:
    return Operation(
        name=f"{method} {path}",
        method=method,
        path=path,
        summary="Test.",
        request=ById,
        response=None,
        permission=PUBLIC,
        handler=handler,
    )


ROUTES = Routes(
    [
        op("GET", "/jobs"),
        op("GET", "/jobs/{id}"),
        op("DELETE", "/jobs/{id}"),
        op("GET", "/jobs/special"),
        op("POST", "/jobs/{id}:cancel"),
        op("POST", "/jobs/{id}:cancel:all"),
        op("GET", "/jobs/{id}/position"),
        op("POST", "/jobs/{id}/assignments/{other}:close"),
    ]
)


def find(method: str, path: str) -> tuple[str, dict[str, str]]:
    match = ROUTES.find(method, split_path(path.encode()))
    return match.operation.path, match.parameters


@pytest.mark.parametrize(
    ("method", "path", "pattern", "parameters"),
    [
        ("GET", "/jobs", "/jobs", {}),
        ("HEAD", "/jobs", "/jobs", {}),
        ("GET", "/jobs/1", "/jobs/{id}", {"id": "1"}),
        ("GET", "/jobs/special", "/jobs/special", {}),
        ("DELETE", "/jobs/special", "/jobs/{id}", {"id": "special"}),
        ("GET", "/jobs/special/position", "/jobs/{id}/position", {"id": "special"}),
        ("GET", "/jobs/a%2Fb", "/jobs/{id}", {"id": "a/b"}),
        ("GET", "/jobs/a%2Fposition", "/jobs/{id}", {"id": "a/position"}),
        ("GET", "/jobs/8%3Aacs%3Ax", "/jobs/{id}", {"id": "8:acs:x"}),
        ("GET", "/jobs/8:acs:x", "/jobs/{id}", {"id": "8:acs:x"}),
        ("POST", "/jobs/8:acs:x:cancel", "/jobs/{id}:cancel", {"id": "8:acs:x"}),
        ("POST", "/jobs/8%3Aacs%3Ax%3Acancel", "/jobs/{id}:cancel", {"id": "8:acs:x"}),
        ("POST", "/jobs/x:cancel:all", "/jobs/{id}:cancel:all", {"id": "x"}),
        ("GET", "/jobs/x:cancel", "/jobs/{id}", {"id": "x:cancel"}),
        ("DELETE", "/jobs/x:cancel", "/jobs/{id}", {"id": "x:cancel"}),
        (
            "POST",
            "/jobs/1/assignments/2:close",
            "/jobs/{id}/assignments/{other}:close",
            {"id": "1", "other": "2"},
        ),
    ],
)
def test_finds(method: str, path: str, pattern: str, parameters: dict[str, str]) -> None:
    assert find(method, path) == (pattern, parameters)


@pytest.mark.parametrize(
    "path",
    ["/", "/job", "/jobs/", "//jobs", "/jobs/1/", "/jobs/1/2", "/JOBS", "*", "/jobs//position"],
)
def test_nothing_is_there(path: str) -> None:
    with pytest.raises(NotFound):
        find("GET", path)
    assert ROUTES.allowed(split_path(path.encode())) == ()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/jobs", ("GET", "HEAD", "OPTIONS")),
        ("POST", "/jobs/1", ("DELETE", "GET", "HEAD", "OPTIONS")),
        ("POST", "/jobs/1:unknown", ("DELETE", "GET", "HEAD", "OPTIONS")),
        ("PATCH", "/jobs/1:cancel", ("DELETE", "GET", "HEAD", "OPTIONS", "POST")),
        ("POST", "/jobs/:cancel", ("DELETE", "GET", "HEAD", "OPTIONS")),
    ],
)
def test_another_method_is_refused_with_those_there_are(
    method: str, path: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(MethodNotAllowed, match=" or ".join(allowed)):
        find(method, path)
    assert ROUTES.allowed(split_path(path.encode())) == allowed


def test_an_operation_is_there_once() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Routes([op("GET", "/x/{id}"), op("GET", "/x/{other}")])


@settings(deadline=None)
@given(st.text(min_size=1).filter(lambda text: text != "special"))
def test_every_id_survives_the_path(value: str) -> None:
    try:
        raw = quote(value, safe="")
    except UnicodeEncodeError:
        return
    assert find("GET", f"/jobs/{raw}") == ("/jobs/{id}", {"id": value})
