"""The pages of jobs: one job, running it again, acting on all that match, files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.conftest import HOSTILE

if TYPE_CHECKING:
    from tests.dashboard.conftest import Desk

pytestmark = pytest.mark.anyio


async def test_a_job_shows_its_path_error_and_data_but_no_secrets(desk: Desk) -> None:
    failed = await desk.ended("bad", name=HOSTILE, token="ana")
    sent = await desk.ended("mail", data={"to": HOSTILE}, token="ana")
    waiting = await desk.submitted("nobody", data={"smtp_password": "hunter2"})
    async with desk.browser("admin") as browser:
        page = await browser.get(f"/jobs/{failed}")
        assert 'class="now visited n-failed"' in page.text
        assert "<script>alert" not in page.text
        assert f"/jobs/{sent}" in page.text  # of the same token
        assert "&lt;script&gt;" in (await browser.get(f"/jobs/{sent}")).text
        page = await browser.get(f"/jobs/{waiting}")
        assert "No host has ever registered the handler" in page.text
        assert "hunter2" not in page.text
        assert "hunter2" in (await browser.get(f"/jobs/{waiting}?reveal=1")).text
        assert (await browser.get("/jobs/00000000-0000-0000-0000-000000000000")).status == 404
    async with desk.browser("viewer") as browser:
        page = await browser.get(f"/jobs/{waiting}?reveal=1")
        assert page.status == 200
        assert "hunter2" not in page.text
        assert (await browser.get(f"/jobs/{waiting}/again")).status == 403


async def test_a_job_runs_again_with_other_data(desk: Desk) -> None:
    job = await desk.ended("mail", data={"to": "ana"})
    async with desk.browser("admin") as browser:
        form = await browser.get(f"/jobs/{job}/again")
        sent: dict[str, Any] = {"csrf": form.csrf, "do": f"jobs.run_again {job}"}
        wrong = await browser.post("/act", **{**sent, "json.data": "{"})
        assert (wrong.status, "not JSON" in wrong.text) == (400, True)
        shown = await browser.post("/act", **{**sent, "json.data": '{"to": "bo"}'})
        assert "Submit again: 1 done." in shown.text
        assert "&#34;bo&#34;" in shown.text
        assert f"/jobs/{job}" in shown.text  # its origin


async def test_an_action_on_all_that_match_wants_their_number_typed(desk: Desk) -> None:
    jobs = [await desk.ended("bad", token="many") for _ in range(3)]
    other = await desk.ended("bad")
    async with desk.browser("operator") as browser:
        preview = await browser.get("/jobs/matching?token=many&status=failed")
        assert "3 jobs match" in preview.text
        sent: dict[str, Any] = {
            "csrf": preview.csrf,
            "do": "jobs.delete",
            "next": "/jobs?token=many",
        }
        query = "token=many&status=failed"
        wrong = await browser.post("/act", **sent, matching=query, typed="4")
        assert "Nothing was done" in wrong.text
        bare = await browser.post("/act", **sent, matching="", typed="4")
        assert "needs a condition" in bare.text  # nothing reaches all jobs there are
        pause = {**sent, "do": "jobs.pause"}
        refused = await browser.post("/act", **pause, matching=query, typed="3")
        assert "Pause: 0 done. 3 refused" in refused.text
        done = await browser.post("/act", **sent, matching=query, typed="3")
        assert "Delete: 3 done." in done.text
    left = [str(job.id) for job in await desk.app.jobs.query().where(id=[*jobs, other])]
    assert left == [other]


async def test_jobs_are_postponed_from_now(desk: Desk) -> None:
    job = await desk.submitted("nobody")
    async with desk.browser("operator") as browser:
        page = await browser.get(f"/jobs/{job}")
        sent: dict[str, Any] = {"csrf": page.csrf, "do": f"jobs.postpone {job}", "in.until": "3600"}
        assert "Postpone: 1 done." in (await browser.post("/act", **sent, next="/jobs")).text
        assert (await browser.post("/act", **{**sent, "in.until": "soon"})).status == 400
    found = await desk.app.jobs.query().where(id=job).first()
    assert found is not None
    assert found.status == "waiting"


async def test_a_view_is_a_url_and_a_file(desk: Desk) -> None:
    job = await desk.ended("mail", name="=cmd()", token="files")
    async with desk.browser("viewer") as browser:
        page = await browser.get("/jobs?token=files&column=name&column=id")
        assert "<th>Id</th>" in page.text
        assert "<th>Handler</th>" not in page.text
        rows = (await browser.get("/jobs?token=files&column=name&export=json")).text
        assert json.loads(rows) == [{"id": job, "name": "=cmd()"}]
        table = await browser.get("/jobs?token=files&column=name&export=csv")
        assert table.text.splitlines() == ["id,name", f"{job},'=cmd()"]
        assert "attachment" in table.headers["Content-Disposition"]
