"""How commands fail: one line that says what to do, and a code that scripts can rely on."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from relevo import errors
from relevo.cli import exits
from relevo.http.answers import RequestTimeout, UrlTooLong
from tests.e2e.conftest import invoke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Cli, Result, Site


@contextmanager
def _answering(answer: bytes) -> Iterator[str]:
    """A server that reads a request, says `answer` and hangs up; its URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _is_one_line(result: Result) -> bool:
    return (
        result.out == ""
        and result.err.startswith("error: ")
        and len(result.err.splitlines()) == 1
        and "Traceback" not in result.err
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InternalError, 1),
        (errors.SystemFault, 1),
        (RuntimeError, 1),
        (errors.InvalidValue, 2),
        (errors.SettingsError, 2),
        (errors.TooLarge, 2),
        (errors.MethodNotAllowed, 2),
        (errors.InvalidJson, 2),
        (UrlTooLong, 2),
        (RequestTimeout, 2),
        (errors.NotFound, 3),
        (errors.Conflict, 4),
        (errors.LeaseLost, 4),
        (errors.HostSuperseded, 4),
        (errors.ConditionNotMet, 4),
        (errors.SchemaError, 4),
        (errors.SchemaTooNew, 4),
        (errors.Unauthenticated, 5),
        (errors.Forbidden, 5),
        (errors.Unavailable, 6),
        (errors.DatabaseUnavailable, 6),
        (errors.Overloaded, 6),
        (errors.RateLimited, 6),
        (errors.EmbeddedServerError, 6),
        (errors.OutcomeUnknown, 7),
    ],
)
def test_every_error_has_its_code(error: type[Exception], code: int) -> None:
    assert exits.exit_code(error("x")) == code


def test_the_codes_stand_in_the_help() -> None:
    shown = invoke("--help")
    assert shown.code == 0
    for each in exits.EXITS:
        assert f"  {each.code}  {each.meaning[:40]}" in shown.out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("uup",), "Did you mean 'up'? See `relevo --help`."),
        (("host", "lst"), "Did you mean 'list'? See `relevo host --help`."),
        (("host", "list", "--limt", "1"), "'--limit'"),
        (("host", "list", "--limit", "ten"), "'ten' is not a valid integer"),
        (("host", "list", "--limit", "0"), "'--limit': limit takes a whole number >= 1"),
        (("host", "list", "--output", "xml"), "'xml' is not"),
        (("lease", "move", "a", "b", "c"), "--to"),
        (("key", "create", "--name", "x", "--role", "vieewer"), "use viewer"),
        (
            ("key", "create", "--name", "x", "--role", "viewer", "--expires-at", "2100-01-01"),
            "zone",
        ),
        (
            ("key", "create", "--name", "x", "--role", "viewer", "--expires-at", "soon"),
            "is not a time",
        ),
        (("--url", "ftp://x", "host", "list"), "http://127.0.0.1:8080"),
        (("--url", "http://a:b@x", "host", "list"), "http://127.0.0.1:8080"),
        (("--url", "http://x", "doctor"), "--url has no effect here"),
        (("--database", "mysql://x", "host", "list"), "postgresql://"),
        (("--config", "none.toml", "host", "list"), "none.toml does not exist"),
        (("up", "--port", "70000"), "port must be 0 to 65535"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_do(
    site: Site, arguments: tuple[str, ...], hint: str
) -> None:
    refused = site.run(*arguments)
    assert refused.code == 2, refused
    assert _is_one_line(refused), refused
    assert hint in refused.err


@pytest.mark.parametrize("way", ["database", "http"])
def test_what_is_not_there_ends_with_3(site: Site, way: str) -> None:
    for arguments in (("key", "show", "nope"), ("host", "drain", "nope")):
        missing = site.run(*arguments, way=way)
        assert missing.code == 3
        assert _is_one_line(missing)


def test_a_database_without_schema_is_not_migrated_by_the_way(empty_cli: Cli) -> None:
    refused = empty_cli("host", "list")
    assert refused.code == 4
    assert "relevo migrate up" in refused.err
    assert empty_cli("migrate", "plan", "-o", "json").json["items"]


def test_whoever_may_not_ends_with_5(site: Site) -> None:
    stranger = site.run("host", "list", way="http", RELEVO_KEY="")
    assert stranger.code == 5
    assert "RELEVO_KEY" in stranger.err
    wrong = site.run("host", "list", "--key", "wrong", way="http")
    assert wrong.code == 5
    assert "unknown, revoked or expired" in wrong.err
    made = site.run("key", "create", "--name", "x", "--role", "viewer", "-o", "json").json
    viewer = site.run("key", "list", way="http", RELEVO_KEY=made["secret"])
    assert viewer.code == 5
    assert "keys:read" in viewer.err


def test_nobody_there_ends_with_6(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    no_host = invoke("--url", f"http://127.0.0.1:{port}", "host", "list")
    no_database = invoke("--database", f"postgresql://127.0.0.1:{port}/x", "host", "list")
    for unreachable in (no_host, no_database):
        assert unreachable.code == 6
        assert _is_one_line(unreachable), unreachable
    assert "relevo up" in no_host.err


def test_a_connection_that_breaks_while_reading_ends_with_6(site: Site) -> None:
    with _answering(b"") as url:
        broken = site.run("host", "list", "--url", url)
    assert broken.code == 6


def test_a_connection_that_breaks_while_writing_ends_with_7(site: Site) -> None:
    with _answering(b"") as url:
        broken = site.run("host", "drain", "alpha", "--url", url)
    assert broken.code == 7
    assert "may have been done" in broken.err


@pytest.mark.parametrize(
    ("status", "code"), [("200 OK", 2), ("302 Found", 2), ("404 Not Found", 3), ("502 Bad", 6)]
)
def test_an_answer_that_is_not_ours_is_told_as_such_and_not_followed(
    site: Site, status: str, code: int
) -> None:
    head = f"HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-type: text/html\r\n"
    with _answering(f"{head}content-length: 4\r\nconnection: close\r\n\r\n<hi>".encode()) as url:
        strange = site.run("host", "list", "--url", url)
    assert strange.code == code, strange
    assert f"answered {status[:3]}" in strange.err
    assert _is_one_line(strange)


def test_a_fault_of_ours_is_one_line_and_a_traceback_only_on_request(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr("relevo.cli.generic.commands.way_to", broken)
    failed = site.run("host", "list")
    assert failed.code == 1
    assert (
        "unexpected RuntimeError: what nobody thought of; please report it, with --debug"
        in failed.err
    )
    assert _is_one_line(failed)
    shown = site.run("host", "list", "--debug")
    assert "Traceback" in shown.err
    assert shown.err.splitlines()[-1].startswith("error: unexpected RuntimeError")


def test_a_key_with_a_line_break_never_becomes_a_header(site: Site) -> None:
    refused = site.run("host", "list", way="http", RELEVO_KEY="a\r\nx: y")
    assert refused.code == 2
    assert _is_one_line(refused)
