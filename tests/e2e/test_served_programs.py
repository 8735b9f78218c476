"""A program and the API in one host: its tables, messages and bulk kinds over HTTP."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.e2e.conftest import PRESET

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli, Host

PROGRAM = """
import msgspec
import relevo
from relevo.dataverse.bulk import MatchField
from relevo.pipeline import ASYNC, POST


class Order(msgspec.Struct):
    id: str
    mail: str
    status: str = "new"


app = relevo.App()
app.table("order", app.container("orders", partition_key="/id", model=Order))


@app.message("Approve")
async def approve(ctx):
    await ctx.service.update("order", ctx.input["order"], {"status": "approved"})
    return {"by": ctx.input["by"].upper()}


@app.step("Update", "order", stage=POST, mode=ASYNC)
async def audit(ctx):
    pass


@app.job("prepare")
async def prepare(ctx):
    for number in range(3):
        order = {"id": f"o{number}", "mail": f"{number // 2}@example.org"}
        await ctx.service.create("order", order)
    rule = await app.bulk.publish_rule("by mail", "orders", [MatchField(path="mail")])
    await rule.wait(timeout=60)
"""
KEY = {"Authorization": f"Bearer {PRESET}"}


def _post(host: Host, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"{host.url}{path}", msgspec.json.encode(body), {**KEY, "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return msgspec.json.decode(answer.read())


def _ended(host: Host, job: str) -> Any:
    status, found = host.ask(f"/v1/jobs/{job}/end?wait_seconds=30", KEY)
    assert status == 200
    assert found["done"], found
    return found["job"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "shop:app", "--port", "0", "--output", "json"),
        ("run", "shop", "--http", "127.0.0.1:0", "--output", "json"),
    ],
    ids=["up", "run"],
)
def test_tables_messages_and_bulk_kinds_of_a_program_are_reachable_over_http(
    cli: Cli, arguments: tuple[str, ...]
) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    host = cli.spawn(*arguments, "--name", "shop-1", access_key=PRESET).begin()
    assert host.told["host"] == "shop-1"
    assert host.ask("/readyz")[0] == 200

    job = _post(host, "/v1/jobs", {"handler": "prepare"})["id"]
    assert _ended(host, job)["status"] == "succeeded"

    said = _post(host, "/api/data/v9.2/Approve", {"order": "o1", "by": "ana"})
    assert said["by"] == "ANA"

    status, found = host.ask(
        "/api/data/v9.2/asyncoperations?$filter=_regardingobjectid_value%20ne%20null"
        "&$expand=regardingobjectid_order",
        KEY,
    )
    assert status == 200, found
    assert found["value"][0]["regardingobjectid_order"]["status"] == "approved"

    asked = {
        "Query": {"EntityName": "order"}, "JobName": "doubles", "SendEmailNotification": False,
        "TemplateId": "00000000-0000-0000-0000-000000000000", "ToRecipients": [],
        "CCRecipients": [], "RecurrencePattern": "",
    }  # fmt: skip
    job = _post(host, "/api/data/v9.2/BulkDetectDuplicates", asked)["JobId"]
    assert _ended(host, job)["status"] == "succeeded"
    assert host.stop().code == 0


def test_a_program_with_the_api_shows_the_first_key_once(cli: Cli) -> None:
    (cli.folder / "shop.py").write_text(PROGRAM)
    host = cli.spawn("run", "shop", "--http", ":0")
    assert host.process.stdout is not None
    said = ""
    while "key create" not in said:
        line = host.process.stdout.readline()
        assert line, host.log
        said += line
    (key,) = re.findall(r"^export RELEVO_KEY=(\S+)$", said, re.MULTILINE)
    (url,) = re.findall(r"is up at (\S+)$", said, re.MULTILINE)
    host.told = {"url": url}
    assert host.ask("/v1/hosts", {"Authorization": f"Bearer {key}"})[0] == 200
    assert "serving " in host.log
    host.stop()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "shop", "--http", "8080"), "host:port; write it like 127.0.0.1:8080"),
        (("run", "shop", "--http", "h:70000"), "host:port; write it like 127.0.0.1:8080"),
        (("up", "shop", "--database", "postgresql://other/x"), "sets its own database"),
        (("run", "shop", "--home", "/elsewhere"), "sets its own home"),
        (("--url", "http://127.0.0.1:1", "up", "shop"), "--url has no effect here"),
    ],
)
def test_what_cannot_be_meant_with_a_program_is_a_usage_error(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    url = cli.environment["RELEVO_DATABASE_URL"]
    (cli.folder / "shop.py").write_text(
        f"import relevo\n\napp = relevo.App({url!r}, home='here')\n"
    )
    refused = cli(*arguments)
    assert (refused.code, said in refused.err) == (2, True), refused
