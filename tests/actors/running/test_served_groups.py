"""Placement groups: actors and stateless types run on the hosts that serve theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.actors import Actor, Interface
from relevo.errors import InvalidValue, NoHost

if TYPE_CHECKING:
    from relevo import App
    from tests.actors.running.conftest import Hosts

pytestmark = pytest.mark.anyio


class Spool(Interface):
    async def where(self) -> str: ...


def define(app: App, name: str) -> None:
    @app.actor("spool", implements=Spool, placement_group="disk-a")
    class SpoolActor(Actor[None]):
        async def where(self) -> str:
            return name

    @app.stateless("shredder", implements=Spool, placement_group="disk-a")
    class ShredderActor(Actor[None]):
        async def where(self) -> str:
            return name


async def test_actors_run_where_their_placement_group_is_served(hosts: Hosts) -> None:
    plain, disk = hosts.app(host_name="plain"), hosts.app(host_name="disk")
    for app in (plain, disk):
        define(app, app.settings.host_name or "")
    spool: Any = plain.actor(Spool, "jobs")
    shredder: Any = plain.stateless(Spool)
    async with plain.host():
        for proxy in (spool, shredder):  # no host may come for years
            with pytest.raises(NoHost, match="'disk-a'; start one"):
                await proxy.with_(timeout=3_600).where()
        async with disk.host(placement_groups=["default", "disk-a"]):
            assert await spool.where() == "disk"
            assert await shredder.where() == "disk"
        units = {one.unit for one in await plain.directory.leases(kind="actors")}
        assert units == {"disk-a"}
        with pytest.raises(NoHost):  # one may come back
            await spool.with_(timeout=0.3).where()
    with pytest.raises(InvalidValue, match="a list of names"):
        async with plain.host(placement_groups="disk-a"):
            pass
