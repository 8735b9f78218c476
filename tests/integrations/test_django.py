"""The example on Django: views, the ORM's transaction, `manage.py relevo_host`, Django's Tasks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import django
import pytest

import relevo.sync
from relevo.errors import SettingsError
from relevo.http.access.key_model import NewKey
from relevo.http.server import serving
from relevo.http.services import open_services
from relevo.integrations import django as integration
from tests.dashboard.conftest import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "django_shop"


@pytest.fixture
def project(relevo_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's project, set up on a database, with a host in a process of its own."""
    monkeypatch.setenv("RELEVO_DATABASE_URL", relevo_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    django.setup()
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)
    host = subprocess.Popen([sys.executable, "manage.py", "relevo_host"], cwd=EXAMPLE)
    try:
        yield
    finally:
        connections.close_all()
        integration.client().close()
        import_module("shop.settings").RELEVO.close()
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0


def test_the_shop_on_django(project: None) -> None:
    from django.test import Client

    web = Client()
    made = web.post("/orders", {"dish": "soup"})
    assert made.status_code == 201
    assert web.post("/orders", {"dish": "nothing"}).status_code == 422
    # The order and the job of the request that failed were rolled back together.
    assert web.get("/orders").json() == {"orders": ["soup"]}
    client = integration.client()
    assert client.job(made.json()["job"]).wait(60) == "order 1: soup"
    assert web.get(f"/receipts/{made.json()['job']}").json()["receipt"] == "order 1: soup"
    jobs = client.run(client.app.jobs.query().top(50))
    assert [job.handler for job in jobs if job.handler == "receipt"] == ["receipt"]
    if django.VERSION >= (6, 0):
        check_tasks(client)
    asyncio.run(check_dashboard())


async def check_dashboard() -> None:
    """The pages under their prefix, Django's elsewhere."""
    application = import_module("shop.asgi").application

    class Served:
        """What Relevo's server wants of an application."""

        refuse = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await application(scope, receive, send)

        def stop(self) -> None:
            """Nothing to stop."""

    site: Any = Served()
    told = integration.named_app().settings
    async with relevo.App(settings=told) as app, open_services(app) as services:
        secret = (await services.keys.create(NewKey(name="ana", roles=("viewer",)))).secret
    try:
        async with serving(site, "127.0.0.1", 0) as address:
            browser = Browser(address.url)
            try:
                page = await browser.post("/relevo/sign-in", key=secret, next="/jobs")
                assert page.status == 200
                assert 'href="/relevo/jobs"' in page.text
                assert "receipt" in page.text
                assert (await browser.get("/relevo/keys")).status == 403
                assert "soup" in (await browser.get("/orders")).text
            finally:
                await browser.session.close()
    finally:
        await application.close()


def check_tasks(client: relevo.sync.App) -> None:
    """Django's Tasks: arguments, the ORM's transaction, results, failures, unknown ids."""
    from django.db import transaction
    from django.tasks import TaskResultStatus, default_task_backend
    from django.tasks.exceptions import TaskResultDoesNotExist

    tasks: Any = import_module("shop.tasks")
    with transaction.atomic():
        bill = tasks.bill.enqueue(7, currency="USD")
        assert bill.status == TaskResultStatus.READY
    with pytest.raises(KeyError), transaction.atomic():
        lost = tasks.bill.enqueue(8)
        raise KeyError
    client.job(bill.id).wait(60)
    bill.refresh()
    assert (bill.status, bill.return_value) == ("SUCCESSFUL", "bill for order 7 in USD")
    assert (bill.args, bill.kwargs, bill.attempts) == ([7], {"currency": "USD"}, 1)
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(lost.id)
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result("not an id")

    flaky = tasks.flaky.using(priority=-100).enqueue(9)
    with pytest.raises(relevo.JobFailed):
        client.job(flaky.id).wait(60)
    flaky.refresh()
    assert flaky.status == TaskResultStatus.FAILED
    [error] = flaky.errors
    assert error.exception_class is LookupError
    assert "no order 9" in error.traceback


def test_urls_and_entries_of_databases_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://ana:p%40ss@/shop?host=db.example&port=5433&sslmode=require"
    entry = integration.database(url)
    assert {name: entry[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")} == {
        "NAME": "shop", "USER": "ana", "PASSWORD": "p@ss", "HOST": "db.example", "PORT": "5433"
    }  # fmt: skip
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": "x"}
    project = SimpleNamespace(DATABASES={"default": entry, "old": other})
    monkeypatch.setattr("django.conf.settings", project)
    again = integration.database(integration.database_url())
    assert again == entry
    with pytest.raises(SettingsError, match=r"needs django\.db.backends.postgresql"):
        integration.database_url("old")
