"""The embedded server with real servers, real processes, real signals and real file systems."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relevo.errors import Closed, EmbeddedServerError, SettingsError
from relevo.kernel.postgres.embedded import server as embedded
from relevo.kernel.postgres.embedded.file_locks import is_free, until
from relevo.kernel.postgres.embedded.server import EmbeddedServer, binaries
from tests.kernel.postgres.embedded_bench import (
    FAST,
    IS_ROOT,
    User,
    is_running,
    joined,
    kill_server,
    open_folder,
    sql,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def base() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def new_home(base: Path) -> Path:
    return base / "home"


@pytest.fixture(scope="module")
def made_home() -> Iterator[Path]:
    """Made once, because that takes a second; each test gets a copy."""
    with open_folder() as folder:
        EmbeddedServer.join(folder / "home", settings=FAST).leave()
        yield folder / "home"


@pytest.fixture
def home(base: Path, made_home: Path) -> Path:
    subprocess.run(["cp", "-a", made_home, base / "home"], check=True)
    return base / "home"


# --- users come and go


def test_joining_starts_one_server_for_all_and_the_last_who_leaves_stops_it(new_home: Path) -> None:
    first, second = EmbeddedServer.join(new_home, settings=FAST), EmbeddedServer.join(new_home)
    pid = first.pid
    assert is_running(first)
    assert second.pid == pid
    assert second.url == first.url
    first.leave()
    assert second.pid == pid
    assert sql(second, "select 1") == "1"
    first.leave()  # a second time: nothing happens, the other's hold least of all
    assert second.pid == pid
    second.leave()
    assert not is_running(second)
    assert is_free(new_home / "postgres.server.lock")


def test_asyncpg_connects_to_any_database_by_url(home: Path) -> None:
    async def where(url: str) -> str:
        connection = await asyncpg.connect(url)
        try:
            answer = await connection.fetchval("select current_user || '@' || current_database()")
        finally:
            await connection.close()
        return str(answer)

    with joined(home) as server:
        sql(server, 'create database "odd / name"')
        assert asyncio.run(where(server.url)) == "relevo@relevo"
        assert asyncio.run(where(server.url_of("odd / name"))) == "relevo@odd / name"


def test_data_stays_when_the_server_is_stopped_and_started(home: Path) -> None:
    with joined(home) as server:
        sql(server, "create table kept as select 42 as answer")
    with joined(home) as server:
        assert sql(server, "select answer from kept") == "42"


def test_a_killed_user_neither_stops_the_server_nor_keeps_it_alive(home: Path) -> None:
    with joined(home) as server:
        user = User(home)
        assert user.join() == server.pid
        user.kill()
        assert sql(server, "select 1") == "1"
    assert not is_running(server)


def test_a_server_whose_last_user_was_killed_is_taken_over(home: Path) -> None:
    user = User(home)
    pid = user.join()
    user.kill()
    with joined(home) as server:
        assert server.pid == pid
    assert not is_running(server)


def test_processes_that_start_at_the_same_instant_share_one_server(new_home: Path) -> None:
    users = [User(new_home) for _ in range(4)]
    for user in users:
        user.go()
    assert len({user.line() for user in users}) == 1
    for user in users:
        user.go()
    assert [user.end() for user in users] == [0, 0, 0, 0]
    assert is_free(new_home / "postgres.server.lock")


def test_users_that_keep_coming_and_going_always_get_a_server(home: Path) -> None:
    code = """
        import asyncio, asyncpg, sys
        from pathlib import Path
        from relevo.kernel.postgres.embedded.server import EmbeddedServer
        async def ask(url):
            connection = await asyncpg.connect(url)
            await connection.fetchval("select 1")
            await connection.close()
        for _ in range(8):
            server = EmbeddedServer.join(Path(sys.argv[1]), settings={"fsync": "off"})
            asyncio.run(ask(server.url))
            server.leave()
    """
    users = [User(home, code) for _ in range(3)]
    assert [user.end() for user in users] == [0, 0, 0]
    assert is_free(home / "postgres.server.lock")


def test_a_forked_child_that_leaves_does_not_end_the_hold_of_its_parent(home: Path) -> None:
    code = """
        import os, sys
        from pathlib import Path
        from relevo.kernel.postgres.embedded.server import EmbeddedServer
        server = EmbeddedServer.join(Path(sys.argv[1]), settings={"fsync": "off"})
        child = os.fork()
        if child == 0:
            server.leave()
            os._exit(0)
        os.waitpid(child, 0)
        EmbeddedServer.join(Path(sys.argv[1])).leave()  # not the last one
        print(server.pid, flush=True)
        server.leave()
    """
    user = User(home, code)
    assert user.line() != "None"
    assert user.end() == 0
    assert is_free(home / "postgres.server.lock")


def test_a_process_that_ends_without_leaving_stops_the_server_if_it_was_the_last(
    home: Path,
) -> None:
    user = User(home, User.CODE.replace("server.leave()", ""))
    user.join()
    user.leave()
    assert is_free(home / "postgres.server.lock")


def test_the_server_has_a_session_of_its_own_so_that_no_ctrl_c_reaches_it(home: Path) -> None:
    with joined(home) as server:
        assert server.pid is not None
        assert os.getsid(server.pid) != os.getsid(0)


# --- the server dies


def test_a_killed_server_is_restarted_with_its_data(home: Path) -> None:
    with joined(home, synchronous_commit="on") as server, joined(home) as other:
        sql(server, "create table kept as select 42 as answer")
        pid, url = server.pid, server.url
        server.ensure_running()
        assert server.pid == pid  # it runs: nothing happens
        kill_server(server)
        other.ensure_running()
        server.ensure_running()
        assert server.pid == other.pid not in {None, pid}
        assert server.url == url
        assert sql(server, "select answer from kept") == "42"


def test_a_server_is_not_started_while_processes_of_the_killed_one_live(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(home) as server:
        backend = subprocess.Popen(
            [binaries() / "psql", "-At", "-d", server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert backend.stdin is not None
        assert backend.stdout is not None
        backend.stdin.write("select pg_backend_pid();\n")
        backend.stdin.flush()
        orphan = int(backend.stdout.readline())
        os.kill(orphan, signal.SIGSTOP)
        try:
            kill_server(server)
            with monkeypatch.context() as patch:
                patch.setattr(embedded, "START_SECONDS_MAX", 0.5)
                with pytest.raises(EmbeddedServerError, match="processes of an earlier server"):
                    server.ensure_running()
        finally:
            os.kill(orphan, signal.SIGCONT)
        server.ensure_running()
        assert sql(server, "select 1") == "1"
        backend.stdin.close()
        with backend:
            backend.wait()


@pytest.mark.parametrize("number_of", ["another process", "a zombie", "nobody"])
def test_a_stale_pid_file_is_seen_through_whatever_it_says(home: Path, number_of: str) -> None:
    with joined(home) as server:
        pid_file = home / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        kill_server(server)
        assert until(lambda: is_free(home / "postgres.server.lock"), 30)
        # PostgreSQL is only fooled by a process of its own account.
        owner = pid_file.stat()
        identity = {"user": owner.st_uid, "group": owner.st_gid} if IS_ROOT else {}
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **identity) as stranger:  # type: ignore[call-overload]
            if number_of == "a zombie":
                stranger.kill()
                os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
            text = "\n".join([str(stranger.pid), *lines[1:], ""])
            pid_file.write_text("" if number_of == "nobody" else text)
            assert not is_running(server)
            server.ensure_running()
            assert server.pid not in {None, stranger.pid}
            stranger.kill()


def test_a_starter_killed_while_it_makes_the_data_leaves_nothing_half_made(new_home: Path) -> None:
    user = User(new_home)
    user.go()
    assert until(lambda: bool(list(new_home.glob("postgres.new-*"))), 60)
    user.kill()
    with joined(new_home) as server:
        assert sql(server, "select 1") == "1"
        assert not list(new_home.glob("postgres.new-*"))


def test_who_has_left_cannot_restart_the_server(home: Path) -> None:
    with joined(home) as server:
        pass
    with pytest.raises(Closed, match="join again"):
        server.ensure_running()


def test_a_folder_deleted_under_the_server_can_be_left_and_made_anew(home: Path) -> None:
    server = EmbeddedServer.join(home, settings=FAST)
    pid = server.pid
    assert pid is not None
    shutil.rmtree(home)
    try:
        server.leave()
        with joined(home) as successor:
            assert successor.pid not in {None, pid}
            assert sql(successor, "select 1") == "1"
    finally:
        os.kill(pid, signal.SIGQUIT)  # it would notice by itself, within a minute


# --- settings


def test_it_runs_durably_and_takes_every_setting_we_give(home: Path) -> None:
    with joined(home, fsync="on") as server:
        for name in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
            assert sql(server, f"show {name}") == "on"
        assert sql(server, "show listen_addresses") == ""
        assert sql(server, "show timezone") == "UTC"
        assert sql(server, "select count(*) from pg_file_settings where error is not null") == "0"
        assert sql(server, "select count(*) from pg_hba_file_rules where error is not null") == "0"


def test_extra_settings_count_for_who_starts_and_altered_ones_last(home: Path) -> None:
    with joined(home, work_mem="5MB") as server, joined(home, work_mem="6MB"):
        assert sql(server, "show work_mem") == "5MB"
        sql(server, "alter system set work_mem = '7MB'")
    with joined(home) as server:
        assert sql(server, "show work_mem") == "7MB"


def test_a_setting_whose_name_is_none_is_refused(home: Path) -> None:
    with pytest.raises(SettingsError, match="not the name of a PostgreSQL setting"):
        EmbeddedServer.join(home, settings={"fsync = off\nport": "1"}).leave()
