"""`relevo migrate` and `relevo doctor`, which work on the database itself."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING, Any

import asyncpg

from relevo.kernel.postgres.migration.migrations import known
from tests.e2e.conftest import invoke

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.testing.databases import TestDatabases
    from tests.e2e.conftest import Cli, Result

LABELS = [migration.label for migration in known()]


def _execute(url: str, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def _doctor(url: str, home: Path, **environment: str) -> Result:
    told = {"RELEVO_DATABASE_URL": url, "RELEVO_HOME": str(home), **environment}
    return invoke("doctor", "-o", "json", environment=told)


def _found(result: Result) -> dict[str, Any]:
    return {one["check"]: one for one in result.json["items"]}


def test_an_empty_database_is_planned_migrated_and_then_up_to_date(empty_cli: Cli) -> None:
    before = empty_cli("migrate", "status", "-o", "json").json["items"]
    assert [(one["migration"], one["state"]) for one in before] == [(n, "pending") for n in LABELS]
    plan = empty_cli("migrate", "plan")
    assert plan.code == 0
    head, first, *_ = plan.out.splitlines()
    assert head.split() == ["MIGRATION", "STATE", "DESCRIPTION", "LOCKS"]
    assert first.split()[:2] == [LABELS[0], "pending"]
    done = empty_cli("migrate", "up", "-o", "json")
    assert done.json == {"applied": LABELS}
    after = empty_cli("migrate", "status", "-o", "json").json["items"]
    assert all(one["state"] == "applied" and one["applied_at"] for one in after)
    assert empty_cli("migrate", "plan").out == "nothing to show\n"
    assert empty_cli("migrate", "up").out == "nothing to do: the schema is up to date\n"
    assert empty_cli("host", "list").code == 0


def test_a_schema_that_is_not_ours_is_shown_and_refused(relevo_url: str) -> None:
    _execute(
        relevo_url,
        """insert into relevo.migration (version, name, checksum, program)
        values (9999, 'x', 'y', 'z')""",
    )
    told = {"RELEVO_DATABASE_URL": relevo_url}
    shown = invoke("migrate", "status", environment=told)
    assert shown.code == 0
    assert shown.out.splitlines()[-1].split()[:2] == ["9999_x", "unknown"]
    for verb in ("plan", "up"):
        refused = invoke("migrate", verb, environment=told)
        assert refused.code == 4
        assert "newer Relevo" in refused.err


def test_the_doctor_finds_settings_that_lose_work(relevo_url: str, tmp_path: Path) -> None:
    name = relevo_url.rpartition("/")[2].partition("?")[0]
    _execute(relevo_url, f'alter database "{name}" set synchronous_commit = off')
    ill = _doctor(relevo_url, tmp_path)
    assert ill.code == 4
    durability = _found(ill)["durability"]
    assert durability["state"] == "fail"
    assert "synchronous_commit" in durability["detail"]
    assert durability["advice"]
    assert _found(ill)["schema"]["state"] == "ok"


def test_the_doctor_looks_at_what_there_is_when_the_database_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ill = _doctor(f"postgresql://user:hidden@127.0.0.1:{port}/x", tmp_path)
    assert ill.code == 4
    found = _found(ill)
    assert found["database"]["state"] == "fail"
    assert "cannot connect" in found["database"]["detail"]
    assert found["hosts"]["state"] == "skip"
    assert found["folder"]["state"] == "ok"
    assert "hidden" not in ill.out + ill.err


def test_the_doctor_does_not_need_a_schema(empty_cli: Cli) -> None:
    found = _found(empty_cli("doctor", "-o", "json"))
    assert found["schema"]["state"] == "warn"
    assert "relevo migrate up" in found["schema"]["advice"]
    assert found["clock"]["state"] == "skip"
    refusing = _found(empty_cli("doctor", "-o", "json", migrate="false"))
    assert refusing["schema"]["state"] == "fail"


def test_the_doctor_finds_more_leases_than_connections(relevo_url: str, tmp_path: Path) -> None:
    assert _found(_doctor(relevo_url, tmp_path))["handlers"]["state"] == "ok"
    host = "00000000-0000-7000-8000-000000000001"
    _execute(
        relevo_url,
        "insert into relevo.host (incarnation, name, lease_until, started_at, version)"
        f" values ('{host}', 'busy', relevo.now() + '1 h', relevo.now(), '1')",
        "insert into relevo.unit (kind, name, strict, handoff_timeout, rest)"
        " values ('feed', 'billing', false, '1 s', '1 s')",
        "insert into relevo.lease (unit_id, name, owner, epoch, free_since)"
        f" select u.id, n::text, '{host}', 1, null from relevo.unit u, generate_series(1, 40) n",
    )
    few = _found(_doctor(relevo_url, tmp_path, RELEVO_POOL_SIZE="4"))["handlers"]
    assert few["state"] == "warn"
    assert "1 of 4 connections for handlers" in few["detail"]
    assert "40 feed leases" in few["detail"]
    assert "pool_size" in few["advice"]
    assert _found(_doctor(relevo_url, tmp_path, RELEVO_POOL_SIZE="20"))["handlers"]["state"] == "ok"
    many = _found(_doctor(relevo_url, tmp_path, RELEVO_POOL_SIZE="900"))["handlers"]
    assert many["state"] == "warn"
    assert "1 hosts take up to 902 connections" in many["detail"]


def test_the_doctor_shows_what_it_leaves_out_of_a_url(relevo_url: str, tmp_path: Path) -> None:
    mark = "&" if "?" in relevo_url else "?"
    vendors = f"{relevo_url}{mark}keepalives=1&keepalives_idle=30&connect_timeout=10"
    found = _found(_doctor(vendors, tmp_path))["url"]
    assert found["state"] == "ok"
    assert found["detail"].endswith("no effect: keepalives, keepalives_idle")
    unmet = _found(_doctor(f"{vendors}&channel_binding=require", tmp_path))["url"]
    assert unmet["state"] == "warn"
    assert "required but not supported: channel_binding" in unmet["detail"]


def test_an_error_that_relevo_does_not_know_says_where_and_what_to_do(relevo_url: str) -> None:
    _execute(relevo_url, "alter table relevo.host rename column name to title")
    refused = invoke("host", "list", environment={"RELEVO_DATABASE_URL": relevo_url})
    assert refused.code == 1
    assert "column h.name does not exist" in refused.err
    assert re.search(
        r"SQLSTATE 42703; statement [a-z_]+\.[a-z_]+ of Relevo, on PostgreSQL 1[5-8][0-9.]*",
        refused.err,
    )
    assert "`relevo doctor` checks" in refused.err
    assert "unexpected" not in refused.err


def test_the_doctor_finds_what_others_can_read(relevo_url: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    key = tmp_path / "secret.key"
    key.write_text("x")
    key.chmod(0o644)
    ill = _doctor(relevo_url, tmp_path)
    folder = _found(ill)["folder"]
    assert (ill.code, folder["state"]) == (4, "fail")
    assert str(key) in folder["detail"]
    assert folder["advice"] == f"chmod go= {key}"


def test_the_doctor_finds_a_master_key_that_does_not_fit(relevo_url: str, tmp_path: Path) -> None:
    told = {"RELEVO_DATABASE_URL": relevo_url, "RELEVO_HOME": str(tmp_path / "a")}
    signing = ("--name", "x", "--role", "viewer", "--kind", "signing")
    assert invoke("key", "create", *signing, environment=told).code == 0
    assert _found(_doctor(relevo_url, tmp_path / "a"))["master key"]["state"] == "ok"
    assert _found(_doctor(relevo_url, tmp_path / "b"))["master key"]["state"] == "warn"
    other = {"RELEVO_SECRET_KEY": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
    assert _found(_doctor(relevo_url, tmp_path / "b", **other))["master key"]["state"] == "fail"
    assert not (tmp_path / "b").exists()


def test_the_doctor_finds_a_role_without_rights(relevo_url: str, tmp_path: Path) -> None:
    name = f"weak_{relevo_url.partition('?')[0].rpartition('_')[2]}"
    _execute(relevo_url, f"create role {name} login", f"grant {name} to current_user")
    try:
        query = "&" if "?" in relevo_url else "?"
        ill = _doctor(f"{relevo_url}{query}options=-c%20role%3D{name}", tmp_path)
        rights = _found(ill)["rights"]
        assert (ill.code, rights["state"]) == (4, "fail"), ill
        assert "a host also needs execute on relevo.accept_messages" in rights["detail"]
    finally:
        _execute(relevo_url, f"drop role {name}")


def test_the_doctor_sees_lapsed_hosts_and_blocked_leases(relevo_url: str, tmp_path: Path) -> None:
    _execute(
        relevo_url,
        """insert into relevo.host (incarnation, name, lease_until, started_at, version)
        values (gen_random_uuid(), 'gone', relevo.now() - interval '1 min', relevo.now(), '0')""",
        """insert into relevo.unit (kind, name, strict, handoff_timeout, rest)
        values ('feed', 'u', false, '1 s', '1 s')""",
        """insert into relevo.lease (unit_id, name, state)
        select id, 'stuck', 'blocked' from relevo.unit""",
    )
    found = _found(_doctor(relevo_url, tmp_path))
    assert found["hosts"]["state"] == "warn"
    assert "1 lapsed: gone" in found["hosts"]["detail"]
    assert found["leases"]["state"] == "warn"
    assert "1 blocked" in found["leases"]["detail"]


def test_an_error_of_the_server_says_what_was_done_and_where(
    relevo_databases: TestDatabases, tmp_path: Path
) -> None:
    url = relevo_databases.create(migrated=False)
    _execute(
        url,
        "create function public.refuse() returns event_trigger language plpgsql as"
        " $$ begin raise feature_not_supported using message = 'not on this server'; end $$",
        "create event trigger refuse on ddl_command_start when tag in ('CREATE TABLE')"
        " execute function public.refuse()",
    )
    told = {"RELEVO_DATABASE_URL": url, "RELEVO_HOME": str(tmp_path)}
    refused = invoke("migrate", "up", environment=told)
    relevo_databases.drop(url)
    assert refused.code != 0
    assert "not on this server" in refused.err
    assert "statement postgres.bootstrap of Relevo, on PostgreSQL 1" in refused.err
    assert "SQLSTATE 0A000" in refused.err
    assert "`relevo doctor`" in refused.err
    assert "unexpected" not in refused.err


def test_a_statement_that_the_server_refuses_is_named(cli: Cli, relevo_url: str) -> None:
    _execute(relevo_url, "alter table relevo.host rename column labels to badges")
    refused = cli("host", "list")
    assert refused.code != 0
    assert "statement leases." in refused.err
    assert "on PostgreSQL 1" in refused.err
    assert "`relevo doctor`" in refused.err
