"""Our own clients of the router's operations: in process and over HTTP they give the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.cli.calling.local_calls import LocalCalls
from relevo.cli.calling.remote_calls import over_http
from relevo.cli.generic import fields
from relevo.cli.generic.commands import all_pages
from relevo.errors import ConditionNotMet, NotFound, ReferenceNotFound, RelevoError
from relevo.http.operations import operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.cli.calling.calls import Calls
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio

NAME = "router.distribution_policies"


@pytest.fixture(params=["here", "there"])
async def calls(request: pytest.FixtureRequest, site: Site) -> AsyncIterator[Calls]:
    if request.param == "here":
        yield LocalCalls(site.services.app)
    else:
        async with over_http(site.address.url, site.secrets["admin"]) as remote:
            yield remote


async def ask(calls: Calls, name: str, **given: Any) -> Any:
    each = operation(name)
    reply = await calls.call(each, fields.values(each, given))
    return msgspec.json.decode(reply.body) if reply.body else None


async def refused(calls: Calls, name: str, **given: Any) -> RelevoError:
    with pytest.raises(RelevoError) as caught:
        await ask(calls, name, **given)
    return caught.value


async def test_a_policy_from_creation_to_deletion(calls: Calls) -> None:
    made = await ask(calls, f"{NAME}.patch", id="a:b/c", patch={"name": "n"})
    assert (made["id"], made["name"]) == ("a:b/c", "n")
    assert await ask(calls, f"{NAME}.get", id="a:b/c") == made
    stale = await refused(calls, f"{NAME}.patch", id="a:b/c", patch={}, if_match='"x"')
    assert (type(stale), stale.pointer) == (ConditionNotMet, "If-Match")
    assert await ask(calls, f"{NAME}.delete", id="a:b/c") is None
    assert type(await refused(calls, f"{NAME}.get", id="a:b/c")) is NotFound


async def test_errors_are_those_of_the_operation(calls: Calls) -> None:
    patch = {"distributionPolicyId": "no"}
    error = await refused(calls, "router.queues.patch", id="q", patch=patch)
    assert (type(error), error.pointer) == (ReferenceNotFound, "/distributionPolicyId")


async def test_every_page_is_one_list(calls: Calls) -> None:
    for number in range(5):
        await ask(calls, f"{NAME}.patch", id=f"d{number}", patch={})
    each = operation(f"{NAME}.list")
    page = await ask(calls, each.name, limit=2)
    assert [one["id"] for one in page["items"]] == ["d0", "d1"]
    page = await ask(calls, each.name, limit=2, cursor=page["next"])
    assert [one["id"] for one in page["items"]] == ["d2", "d3"]
    reply = await all_pages(calls, each, fields.values(each, {"limit": 2}))
    assert [one["id"] for one in msgspec.json.decode(reply.body)["items"]] == [
        f"d{number}" for number in range(5)
    ]
