"""Schedules over HTTP: listed in words, paused, resumed, run now, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.http.table import code

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio
PATH = "/v1/schedules"


async def test_schedules_are_operated_by_name(site: Site) -> None:
    app = site.services.app

    @app.job("report/daily", cron="30 6 * * MON-FRI", timezone="Europe/Madrid")
    async def report(ctx: Any, number: int = 1) -> None: ...

    @app.job("sweep", every=3_600)
    async def sweep(ctx: Any) -> None: ...

    async def ask(method: str, path: str, key: str, **told: Any) -> Any:
        return await site.ask(method, f"{PATH}{path}", key=key, **told)

    async with app.host():
        pass
    listed = (await ask("GET", "?language=es&limit=1", "viewer")).json
    assert [one["name"] for one in listed["items"]] == ["report/daily"]
    assert listed["items"][0]["description"] == "De lunes a viernes a las 06:30 (Europe/Madrid)"
    rest = (await ask("GET", f"?cursor={listed['next']}", "viewer")).json
    assert [(one["name"], one["description"]) for one in rest["items"]] == [("sweep", "Every hour")]

    one = (await ask("GET", "/report%2Fdaily?runs=3", "viewer")).json
    assert (one["state"], one["served"], one["last_run"]) == ("active", True, None)
    assert len(one["next_runs"]) == 3
    assert one["next_runs"][0] == one["next_run"]

    assert (await ask("POST", "/sweep:pause", "operator", json={})).status == 204
    paused = (await ask("GET", "/sweep", "viewer")).json
    assert (paused["state"], paused["next_runs"]) == ("paused", [])
    assert (await ask("POST", "/sweep:resume", "operator", json={})).status == 204
    assert (await ask("POST", "/sweep:pause", "viewer", json={})).status == 403
    made = await ask("POST", "/sweep:run", "producer", json={})
    assert made.status == 201
    job = (await site.ask("GET", f"/v1/jobs/{made.json['id']}", key="viewer")).json
    assert (job["handler"], job["status"]) == ("sweep", "waiting_for_resources")

    assert (await ask("DELETE", "/sweep", "admin")).status == 204
    missing = await ask("GET", "/sweep", "viewer")
    assert (missing.status, code(missing)) == (404, "not_found")
    for verb in ("pause", "resume"):
        assert (await ask("POST", f"/nothing:{verb}", "operator", json={})).status == 404

    # A host that has the handler refuses what it cannot take, before it is stored.
    wrong = {"handler": "report/daily", "data": {"number": "one"}}
    refused = await site.ask("POST", "/v1/jobs", key="producer", json=wrong)
    assert (refused.status, code(refused)) == (400, "invalid_value")
    assert "argument 'number' of handler 'report/daily': Expected `int`" in refused.json["detail"]
