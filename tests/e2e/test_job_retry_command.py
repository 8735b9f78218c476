"""`relevo job retry`: by id, and all that match."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Site


@pytest.fixture(params=("database", "http"))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def canceled(site: Site, handler: str, count: int) -> list[str]:
    """Submit jobs that no host runs, and cancel them."""
    keys = [site.run("job", "submit", handler).out.strip() for _ in range(count)]
    for key in keys:
        assert site.run("job", "cancel", key).code == 0
    return keys


def test_jobs_are_retried_by_id_and_others_are_named(site: Site, way: str) -> None:
    (key,) = canceled(site, f"nobody-{uuid.uuid4().hex[:8]}", 1)
    done = site.run("job", "retry", key, way=way)
    assert (done.code, done.out) == (0, "1 job will run again\n"), done
    again = site.run("job", "retry", key, way=way)
    assert again.code == 4, again
    assert key in again.err
    assert "'retry' cannot happen" in again.err
    shown = site.run("job", "show", key, "-o", "json", way=way).json
    assert shown["status"] == "waiting_for_resources"


def test_all_that_match_are_shown_first_and_retried_with_yes(site: Site, way: str) -> None:
    handler = f"nobody-{uuid.uuid4().hex[:8]}"
    canceled(site, handler, 3)
    chosen = ("job", "retry", "--canceled", "--handler", handler)
    shown = site.run(*chosen, way=way)
    assert (shown.code, "nothing was retried" in shown.err) == (4, True), shown
    assert "3 jobs would run again" in shown.out
    assert handler in shown.out
    assert site.run(*chosen, "-o", "json", way=way).json == {"count": 3, "handlers": {handler: 3}}
    done = site.run(*chosen, "--yes", "-o", "json", way=way)
    assert (done.code, done.json) == (
        0,
        {"matched": 3, "done": 3, "refused": 0, "refusals": {}},
    ), done
    assert "0 jobs would run again" in site.run(*chosen, way=way).out


def test_a_call_that_chooses_nothing_or_twice_is_refused(site: Site) -> None:
    for arguments in ((), ("--handler", "x"), (str(uuid.uuid4()), "--failed")):
        refused = site.run("job", "retry", *arguments)
        assert refused.code == 2, refused


def test_other_commands_reach_all_that_match(site: Site, way: str) -> None:
    handler = f"nobody-{uuid.uuid4().hex[:8]}"
    keys = [site.run("job", "submit", handler).out.strip() for _ in range(2)]
    chosen = ("--handler", handler, "--status", "waiting_for_resources")
    shown = site.run("job", "cancel-all", *chosen, way=way)
    assert (shown.code, "2 jobs would be canceled" in shown.out) == (4, True), shown
    done = site.run("job", "cancel-all", *chosen, "--yes", way=way)
    assert (done.code, done.out) == (0, "canceled or asked to stop: 2 jobs\n"), done
    refused = site.run("job", "resume-all", "--handler", handler, "--yes", way=way)
    assert (refused.code, keys[0] in refused.err) == (4, True), refused
    assert site.run("job", "pause-all", "--yes", way=way).code == 2
    again = site.run("job", "run-again", keys[0], '{"n": 1}', way=way)
    assert again.code == 0, again
    shown = site.run("job", "show", again.out.strip(), "--payload", "-o", "json", way=way)
    assert (shown.json["origin"], shown.json["payload"]["data"]) == (keys[0], {"n": 1})
    until = ("--until", "2100-01-01T00:00:00Z")
    done = site.run("job", "postpone-all", "--handler", handler, *until, "--yes", way=way)
    assert (done.code, "postponed: 1 job\n") == (4, done.out), done
    done = site.run("job", "delete-all", "--handler", handler, "--yes", way=way)
    assert (done.code, done.out) == (0, "deleted: 3 jobs\n"), done
