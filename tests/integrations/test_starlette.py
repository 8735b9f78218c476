"""The example on FastAPI, driven through FastAPI and through its mounted HTTP API."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from relevo.integrations.starlette import StarletteIntegration

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRESET = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="


@pytest.fixture
def shop(relevo_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RELEVO_DATABASE_URL", relevo_url)
    monkeypatch.setenv("RELEVO_ACCESS_KEY", PRESET)
    monkeypatch.syspath_prepend(str(EXAMPLES / "fastapi_shop"))
    sys.modules.pop("fastapi_shop", None)
    return import_module("fastapi_shop")


def test_the_shop_on_fastapi(shop: Any) -> None:
    with TestClient(shop.web) as client:
        made = client.post("/orders", json={"dish": "soup"})
        assert made.status_code == 201
        job = made.json()["job"]
        assert client.post("/orders", json={"dish": "nothing"}).status_code == 422
        # The order and the job of the request that failed were rolled back together.
        assert client.get("/orders").json() == ["soup"]
        answer: dict[str, Any] = {}
        while answer.get("status") != "succeeded":
            answer = client.get(f"/receipts/{job}").json()
        assert answer["receipt"] == "order 1: soup"

        # The HTTP API under its prefix: probes, keys, and links that contain the prefix.
        assert client.get("/relevo/readyz").status_code == 200
        assert client.get("/relevo/v1/jobs").status_code == 401
        key = {"Authorization": f"Bearer {PRESET}"}
        jobs = client.get("/relevo/v1/jobs", headers=key)
        assert [one["id"] for one in jobs.json()["items"]] == [job]
        assert client.get("/relevo/v1/nothing", headers=key).status_code == 404
    assert not shop.app.is_connected  # drained and closed


def test_a_mount_without_the_lifespan_says_what_is_missing(shop: Any) -> None:
    with pytest.raises(Exception, match=r"pass integration\.lifespan"):
        TestClient(StarletteIntegration(shop.app).http_api).get("/readyz")
