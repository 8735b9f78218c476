"""The commands that come from the table of operations, in process and over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest

from relevo.cli.root import build
from relevo.http.operations import OPERATIONS, operation
from relevo.kernel.command_words import also_of, words_of
from relevo.kernel.leases.model import HostInfo, LeaseInfo
from relevo.kernel.operation import Text
from tests.e2e.conftest import PRESET, invoke

if TYPE_CHECKING:
    from pathlib import Path

    from relevo.kernel.operation import Operation
    from tests.e2e.conftest import Cli, Result, Site

WAYS = ("database", "http")
LEADER = ("housekeeping", "main", "leader")
CONTENT = {
    "input", "item", "items", "messages", "operations", "patch", "positions", "queries", "query",
    "query_set", "rates", "row", "steps", "targets",
}  # fmt: skip
"""What commands are about: JSON that is given as an argument."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _command(name: str) -> click.Command:
    found: click.Command = build()
    for part in name.split():
        assert isinstance(found, click.Group), name
        below = found.get_command(click.Context(found), part)
        assert below is not None, name
        found = below
    return found


OWN_FORM = {
    "bulk_deletes.create", "jobs.get", "jobs.payload", "jobs.retry", "jobs.run_again",
    "jobs.submit", "jobs.submit_many", "jobs.wait", "users.get",
    *(row.name for row in OPERATIONS if row.name.startswith("jobs.views.")),
    *(row.name for row in OPERATIONS if row.name.startswith("jobs.") and "_all" in row.name),
}  # fmt: skip
"""Operations whose commands are made for people; `test_job_commands` and others test these."""


@pytest.mark.parametrize(
    "row", [row for row in OPERATIONS if row.name not in OWN_FORM], ids=lambda row: row.name
)
def test_every_operation_has_a_command_with_a_parameter_for_each_field(row: Operation) -> None:
    command = _command(" ".join(also_of(row.name) or words_of(row.name)))
    by_name = {parameter.name: parameter for parameter in command.params}
    for field in msgspec.structs.fields(row.request):
        if field.encode_name in row.fixed or (
            row.name == "feeds.export" and field.name in {"cursor", "limit"}  # it shows all pages
        ):
            assert field.name not in by_name
            continue
        parameter = by_name[field.name]
        content = field.name in CONTENT and field.required
        given_bare = field.encode_name in row.parameters or content
        assert isinstance(parameter, click.Argument if given_bare else click.Option)
        assert parameter.required == field.required
    assert row.summary in (command.help or "")


def _make_key(site: Site, way: str, *options: str) -> Result:
    made = site.run(
        "key", "create", "--name", "made", "--role", "viewer", "--role", "operator", *options,
        "-o", "json", way=way,
    )  # fmt: skip
    assert made.code == 0, made
    return made


def test_hosts_are_listed(site: Site, way: str) -> None:
    shown = site.run("host", "list", way=way)
    assert shown.code == 0, shown
    head, row = shown.out.splitlines()
    assert head.split()[:5] == ["NAME", "LIVE", "DRAINING", "LEASES", "ADDRESS"]
    name, live, _, _, address, *_ = row.split()
    assert (name, live, address) == ("alpha", "yes", site.host.url)
    (host,) = site.run("host", "list", "--output", "json", way=way).json["items"]
    assert host.keys() == {field.name for field in msgspec.structs.fields(HostInfo)}


def test_leases_are_listed(site: Site, way: str) -> None:
    shown = site.run("lease", "list", "--kind", "housekeeping", way=way)
    assert shown.code == 0, shown
    assert shown.out.splitlines()[1].split()[:3] == [*LEADER]
    listed = site.run("-o", "json", "lease", "list", "--kind", "housekeeping", way=way)
    (lease,) = listed.json["items"]
    assert lease.keys() == {field.name for field in msgspec.structs.fields(LeaseInfo)}
    assert site.run("lease", "list", "--unit", "none", way=way).out == "nothing to show\n"


@pytest.mark.parametrize("output", ["table", "json"])
def test_what_answers_nothing_says_done_to_people_and_nothing_to_programs(
    site: Site, way: str, output: str
) -> None:
    for verbs in (("host", "drain", "alpha"), ("host", "resume", "alpha")):
        done = site.run(*verbs, "--output", output, way=way)
        assert (done.code, done.out) == (0, "done\n" if output == "table" else ""), done
    for verb in ("pause", "resume"):
        done = site.run("lease", verb, *LEADER, "--output", output, way=way)
        assert (done.code, done.out) == (0, "done\n" if output == "table" else ""), done


def test_a_lease_moves_only_where_it_can(site: Site, way: str) -> None:
    refused = site.run("lease", "move", *LEADER, "--to", "nowhere", way=way)
    assert refused.code == 4
    assert "cannot move to 'nowhere'" in refused.err


def test_keys_are_made_shown_listed_and_revoked(site: Site, way: str) -> None:
    made = _make_key(site, way, "--expires-at", "2100-01-01T00:00:00+01:00").json
    assert made["key"]["roles"] == ["viewer", "operator"]
    assert made["key"]["expires_at"] == "2099-12-31T23:00:00Z"
    key_id = made["key"]["id"]
    assert site.run("key", "show", key_id, "-o", "json", way=way).json == made["key"]
    assert key_id in site.run("key", "list", "--all", way=way).out
    record = site.run("key", "show", key_id, way=way).out
    assert "roles           viewer, operator\n" in record
    assert "expires_at      2099-12-31T23:00:00Z\n" in record
    revoked = site.run("key", "revoke", key_id, "-o", "json", way=way)
    assert revoked.json["state"] == "revoked"
    assert site.run("key", "revoke", key_id, "--yes", way=way).code == 0


@pytest.mark.parametrize(("answer", "code", "state"), [("n", 4, "active"), ("y", 0, "revoked")])
def test_on_a_terminal_it_asks_before_what_cannot_be_undone(
    site: Site, answer: str, code: int, state: str
) -> None:
    key_id = _make_key(site, "database").json["key"]["id"]
    terminal = site.cli.on_terminal("key", "revoke", key_id)
    terminal.read_until("Continue?")
    terminal.type(f"{answer}\n")
    assert terminal.end() == code, terminal.said
    assert site.run("key", "show", key_id, "-o", "json").json["state"] == state


def test_the_secret_of_a_new_key_stands_on_a_line_of_its_own(site: Site, way: str) -> None:
    made = site.run("key", "create", "--name", "x", "--role", "viewer", way=way)
    secret = made.out.splitlines()[-1].split()[-1]
    used = site.run("host", "list", way="http", RELEVO_KEY=secret)
    assert used.code == 0, used


def test_a_signing_key_is_made_with_the_master_key_of_the_installation(
    site: Site, way: str
) -> None:
    made = _make_key(site, way, "--kind", "signing").json
    assert site.host.ask("/v1/hosts", {"Authorization": f"Bearer {made['secret']}"})[0] == 200
    assert site.run("key", "revoke", made["key"]["id"], way=way).code == 0


def test_without_the_master_key_all_but_signing_keys_works(site: Site, tmp_path: Path) -> None:
    elsewhere = {"RELEVO_HOME": str(tmp_path / "elsewhere")}
    assert site.run("host", "list", **elsewhere).code == 0
    made = site.run(
        "key", "create", "--name", "x", "--role", "viewer", "-o", "json", **elsewhere
    ).json
    assert site.run("key", "revoke", made["key"]["id"], **elsewhere).code == 0
    assert not (tmp_path / "elsewhere").exists()
    refused = site.run(
        "key", "create", "--name", "x", "--role", "viewer", "--kind", "signing", **elsewhere
    )
    assert refused.code == 2
    assert "master key" in refused.err


def test_pages_are_followed_on_request(site: Site, way: str) -> None:
    for _ in range(2):
        _make_key(site, way)
    first = site.run("key", "list", "--limit", "1", way=way)
    assert len(first.out.splitlines()) == 2
    assert "there are more: use --all, or --cursor " in first.err
    cursor = first.err.split()[-1]
    second = site.run("key", "list", "--limit", "1", "--cursor", cursor, "-o", "json", way=way)
    assert second.json["next"]
    everything = site.run("key", "list", "--limit", "1", "--all", "-o", "json", way=way)
    whole = site.run("key", "list", "-o", "json", way=way)
    assert everything.json == whole.json
    assert whole.json["next"] is None


def test_json_is_exactly_what_the_api_answers(site: Site, way: str) -> None:
    answer = site.host.ask("/v1/keys", {"Authorization": f"Bearer {PRESET}"})[1]
    shown = site.run("key", "list", "-o", "json", way=way).json
    assert shown.keys() == answer.keys()
    assert _steady(shown) == _steady(answer)


def _steady(answer: Any) -> Any:
    """Leave out when a key was last used: asking uses it."""
    return [{k: v for k, v in item.items() if k != "last_used_at"} for item in answer["items"]]


def test_what_only_a_host_knows_is_asked_of_the_host(site: Site) -> None:
    port = site.host.url.rpartition(":")[2]
    for verb in ("livez", "readyz", "health", "metrics"):
        asked = site.run("system", verb, way="http")
        assert asked.code == 0, asked
        by_port = site.run("system", verb, RELEVO_PORT=port, RELEVO_KEY=PRESET)
        assert by_port.code == 0, by_port
    assert "relevo_build_info" in site.run("system", "metrics", way="http").out
    assert site.run("system", "readyz", "-o", "json", way="http").json["ready"] is True
    assert operation("system.openapi").response is Text
    documents = [site.run("system", "openapi", way=each).out for each in WAYS]
    assert documents[0] == documents[1]


def test_names_that_need_escaping_arrive_as_they_are(site: Site, way: str) -> None:
    for name in ("a/b", "ü %2F?#", ":drain"):
        missing = site.run("host", "drain", name, way=way)
        assert missing.code == 3
        assert repr(name) in missing.err


def test_a_real_process_does_the_same(cli: Cli) -> None:
    host = cli.up("--name", "alpha", access_key=PRESET)
    key_file = cli.folder / "key"
    key_file.write_text(f"{PRESET}\n")
    over_http = {"database_url": "", "url": host.url, "key_file": str(key_file)}
    by_database = cli("host", "list")
    assert by_database.code == 0, by_database
    assert "alpha" in by_database.out
    listed = cli("host", "list", **over_http)
    assert [line.split()[:2] for line in listed.out.splitlines()] == [
        ["NAME", "LIVE"],
        ["alpha", "yes"],
    ]
    assert PRESET not in listed.out + listed.err


def test_options_given_later_win_and_contradictions_are_refused(site: Site) -> None:
    both = site.run("--output", "json", "host", "list", "--output", "table")
    assert both.out.startswith("NAME")
    refused = invoke("host", "list", "--url", site.host.url, "--home", "x")
    assert refused.code == 2
    assert "either --url or --database" in refused.err
    # an option wins over the environment: --database is not contradicted by RELEVO_URL
    told = {"RELEVO_URL": "http://127.0.0.1:1"}
    assert site.run("host", "list", "--schema", "relevo", **told).code == 0
    # nor is --home overruled by RELEVO_DATABASE_URL
    elsewhere = site.run("host", "list", "--home", str(site.cli.folder / "elsewhere"))
    assert "there is no database in" in elsewhere.err
