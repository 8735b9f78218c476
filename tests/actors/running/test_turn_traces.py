"""The span of a turn, for callers of other processes and within a chain of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.actors.unit import bank
from tests.support.spans import is_child

if TYPE_CHECKING:
    from tests.actors.running.conftest import Hosts
    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio


async def test_a_turn_is_part_of_the_trace_of_a_caller_elsewhere(
    hosts: Hosts, spans: Spans
) -> None:
    await hosts.start()
    client = hosts.app()
    await hosts.enter(client)
    account: Any = client.actor(bank.Account, "ana", type="account")
    with spans.opened("caller"):
        await account.deposit(5)
    turns = [
        one for one in spans.named("relevo.actor.turn")
        if (one.attributes or {}).get("relevo.turn") == "method deposit"
    ]  # fmt: skip
    assert [is_child(one, of=spans.one("caller")) for one in turns] == [True]
