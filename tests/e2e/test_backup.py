"""`relevo backup` and `relevo restore`: a database as a file, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import invoke

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.testing.databases import TestDatabases
    from tests.e2e.conftest import Result

DISH = '{"id": "1", "kind": "soup"}'


def _on(url: str, home: Path, *arguments: str) -> Result:
    return invoke(*arguments, environment={"RELEVO_DATABASE_URL": url, "RELEVO_HOME": str(home)})


@pytest.fixture
def kept(relevo_url: str, tmp_path: Path) -> tuple[str, Path]:
    """A database with an item, and its backup."""
    made = _on(relevo_url, tmp_path, "container", "create", "--name", "dishes", "--partition-key",
               "/kind")  # fmt: skip
    assert made.code == 0, made
    assert _on(relevo_url, tmp_path, "item", "upsert", "dishes", DISH).code == 0
    file = tmp_path / "kitchen.dump"
    done = _on(relevo_url, tmp_path, "backup", str(file))
    assert done.code == 0, done
    assert done.out.startswith(f"wrote {file}, ")
    assert "secret.key" in done.err
    return relevo_url, file


def test_a_backup_fills_an_empty_database(
    kept: tuple[str, Path], relevo_databases: TestDatabases, tmp_path: Path
) -> None:
    _, file = kept
    assert file.stat().st_mode & 0o777 == 0o600
    empty = relevo_databases.create(migrated=False)
    restored = _on(empty, tmp_path, "restore", str(file), "-o", "json")
    if restored.code == 4:
        assert "PostgreSQL 15" in restored.err or "PostgreSQL 16" in restored.err
    else:
        assert restored.json == {"file": str(file), "bytes": file.stat().st_size}
        read = _on(empty, tmp_path, "item", "show", "dishes", "1", "--partition-key", "soup")
        assert read.out.splitlines()[-1].split() == ["body.kind", "soup"]
        again = _on(empty, tmp_path, "restore", str(file))
        assert again.code == 4
        assert "restore into an empty database" in again.err
    relevo_databases.drop(empty)


def test_a_backup_is_never_replaced_or_left_half(kept: tuple[str, Path], tmp_path: Path) -> None:
    url, file = kept
    before = file.read_bytes()
    refused = _on(url, tmp_path, "backup", str(file))
    assert refused.code == 4
    assert "--force" in refused.err
    assert file.read_bytes() == before
    assert _on(url, tmp_path, "backup", "--force", str(file)).code == 0
    nowhere = _on(url, tmp_path, "backup", str(tmp_path / "none" / "x.dump"))
    assert nowhere.code == 2
    assert "cannot be written" in nowhere.err
    assert not list(tmp_path.glob("**/*.part"))


def test_what_is_no_backup_is_refused_before_a_database_is_made(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("eggs")
    for name, reason in ((file, "is no backup"), (tmp_path / "none", "cannot be read")):
        refused = invoke("restore", str(name), environment={"RELEVO_HOME": str(tmp_path / "home")})
        assert refused.code == 2
        assert reason in refused.err
    assert not (tmp_path / "home").exists()


def test_a_torn_backup_restores_nothing(
    kept: tuple[str, Path], relevo_databases: TestDatabases, tmp_path: Path
) -> None:
    _, file = kept
    file.write_bytes(file.read_bytes()[:-200])
    empty = relevo_databases.create(migrated=False)
    torn = _on(empty, tmp_path, "restore", str(file))
    assert torn.code == 4
    assert _on(empty, tmp_path, "migrate", "status").out.count("applied") == 0
    relevo_databases.drop(empty)
