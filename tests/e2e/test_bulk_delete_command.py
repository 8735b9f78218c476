"""`relevo dataverse bulk-delete create`: in scripts, and step by step on a terminal."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli, Result, Site

ITEMS = "\n".join(
    f'{{"id": "{n:03}", "city": "Vigo", "paid": {"false" if n % 2 else "true"}}}' for n in range(24)
)
PAID = ("--where", "paid", "=", "true")


@pytest.fixture(params=("database", "http"))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fill(site: Site) -> str:
    """Make a container of the test's own and return its name."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    made = site.run("container", "create", "--name", name, "--partition-key", "/city")
    assert made.code == 0, made
    (site.cli.folder / "items").write_text(ITEMS)
    filled = site.run("item", "bulk", name, f"@{site.cli.folder / 'items'}")
    assert filled.code == 0, filled
    return name


def test_without_yes_a_script_sees_what_there_is_and_creates_nothing(site: Site, way: str) -> None:
    name = fill(site)

    def run(*more: str) -> Result:
        return site.run(
            "dataverse", "bulk-delete", "create", "--container", name, *PAID, *more, way=way
        )

    shown = run()
    assert (shown.code, "nothing was created" in shown.err) == (4, True), shown
    assert "12 rows would be deleted" in shown.out
    assert '"id":"018"' in shown.out
    assert "and 2 more" in shown.out
    told = run("-o", "json").json
    assert (told["count"], len(told["sample"])) == (12, 10)
    listed = site.run("dataverse", "bulk-delete", "list", "-o", "json", way=way).json["items"]
    assert [name] not in [one["sources"] for one in listed]


def test_with_yes_it_is_created_and_run(site: Site, way: str) -> None:
    name = fill(site)
    made = site.run(
        "dataverse", "bulk-delete", "create",
        "--container", name, *PAID, "--where", "id", "in", '["000", "002"]',
        "--name", "Two", "--max-failures", "0", "--yes", way=way,
    )  # fmt: skip
    assert made.code == 0, made
    key = made.out.strip()
    assert site.run("job", "wait", key, way=way).code == 0
    found = site.run("dataverse", "bulk-delete", "show", key, "-o", "json", way=way).json
    assert (found["name"], found["success"], found["sources"]) == ("Two", 2, [name])
    assert site.run("dataverse", "bulk-delete", "failures", key, way=way).out == "nothing to show\n"


def test_records_of_jobs_are_deleted_again_and_again(site: Site, way: str) -> None:
    made = site.run(
        "dataverse", "bulk-delete", "create",
        "--jobs", "--where", "statuscode", "=", "31", "--recurrence",
        "FREQ=DAILY", "--timezone", "Europe/Madrid", "--start", "2100-06-01T03:00:00Z", "--yes",
        "-o", "json", way=way,
    )  # fmt: skip
    assert made.code == 0, made
    found = site.run(
        "dataverse", "bulk-delete", "show", made.json["id"], "-o", "json", way=way
    ).json
    assert (found["pattern"], found["sources"]) == ("FREQ=DAILY", ["asyncoperation"])
    assert site.run("job", "cancel", made.json["id"], "--series", way=way).code == 0


def test_jobs_are_chosen_by_a_filter(site: Site, way: str) -> None:
    name = f"old {uuid.uuid4().hex[:8]}"
    for n in range(3):
        key = site.run("job", "submit", "nobody", "--name", f"{name} {n}").out.strip()
        assert site.run("job", "cancel", key).code == 0
    text = f"startswith(name,'{name}') and (endswith(name,'0') or endswith(name,'2'))"
    shown = site.run(
        "dataverse", "bulk-delete", "create", "--jobs", "--filter", text, "-o", "json", way=way
    )
    assert [one["name"][-1] for one in shown.json["sample"]] == ["0", "2"]
    wrong = site.run(
        "dataverse", "bulk-delete", "create", "--jobs", "--filter", "nam eq 'x'", "--yes", way=way
    )
    assert (wrong.code, "nam" in wrong.err) == (2, True), wrong


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--yes",), 2),
        (("--container", "orders", "--jobs"), 2),
        (("--jobs", "--timezone", "UTC"), 2),
        (("--jobs", "--where", "statuscode", "like", "x"), 2),
        (("--container", "nowhere", "--yes"), 3),
    ],
)
def test_what_cannot_be_meant_is_refused(site: Site, arguments: tuple[str, ...], code: int) -> None:
    assert site.run("dataverse", "bulk-delete", "create", *arguments).code == code


def test_on_a_terminal_conditions_are_added_step_by_step(cli: Cli) -> None:
    assert cli("container", "create", "--name", "orders", "--partition-key", "/city").code == 0
    assert cli("item", "bulk", "orders", "-", stdin=ITEMS).code == 0
    terminal = cli.on_terminal("dataverse", "bulk-delete", "create")
    terminal.read_until("containers: orders")
    terminal.read_until("(or jobs)")
    terminal.type("orders\n")
    terminal.read_until("24 rows would be deleted")
    terminal.read_until("to finish)")
    terminal.type("paid < true\n")
    terminal.read_until("compares numbers or text")
    terminal.type("paid = true\n")
    terminal.read_until("12 rows would be deleted")
    terminal.type("id < 004\n\n")
    terminal.read_until("Delete 2 rows?")
    terminal.type("y\n")
    assert terminal.end() == 0, terminal.said
    (found,) = cli("dataverse", "bulk-delete", "list", "-o", "json").json["items"]
    assert found["id"] in terminal.said
    asked = cli("job", "show", found["id"], "--payload", "-o", "json")
    wanted = {"container": "orders", "where": [["paid", "=", True], ["id", "<", "004"]]}
    assert asked.json["payload"]["data"]["queries"] == [{**wanted, "by_key": True}]


def test_on_a_terminal_no_means_no(cli: Cli) -> None:
    terminal = cli.on_terminal(
        "dataverse", "bulk-delete", "create", "--jobs", "--where", "statuscode", "=", "31"
    )
    terminal.read_until("Delete 0 rows?")
    terminal.type("n\n")
    assert terminal.end() == 4
    assert cli("dataverse", "bulk-delete", "list", "-o", "json").json["items"] == []
