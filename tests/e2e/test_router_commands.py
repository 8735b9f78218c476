"""The job router from the command line, in process and over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest

from relevo.cli.calling.remote_calls import over_http
from relevo.errors import OutcomeUnknown
from relevo.router.cli import desk as router_desk
from tests.e2e.conftest import PRESET, Cli, until

if TYPE_CHECKING:
    from relevo.cli.calling.calls import Calls, OperationReply
    from relevo.kernel.operation import Operation
    from relevo.testing.databases import TestDatabases
    from tests.e2e.conftest import Result, Site

WAYS = ("database", "http")


class Kitchen:
    """A queue of its own for each test, on the one host of the module, which matches."""

    def __init__(self, site: Site, way: str) -> None:
        self.site = site
        self._way = way
        mark = uuid.uuid4().hex[:8]
        self.queue, self.policy = f"kitchen-{mark}", f"policy-{mark}"
        self.worker, self.job = f"ana-{mark}", f"order-{mark}"
        self.done("distribution-policy", "create", self.policy, "{}")
        self.done("queue", "create", self.queue, json.dumps({"distributionPolicyId": self.policy}))

    def run(self, *arguments: str) -> Result:
        return self.site.run("router", *arguments, way=self._way)

    def done(self, *arguments: str) -> Result:
        found = self.run(*arguments)
        assert found.code == 0, found
        return found

    def json(self, *arguments: str) -> Any:
        return self.done(*arguments, "-o", "json").json

    def hire(self, **change: Any) -> None:
        channel = {"channelId": "pizza", "capacityCostPerJob": 50}
        told = {"queues": [self.queue], "capacity": 100, "channels": [channel], **change}
        self.done("worker", "create", self.worker, json.dumps({"availableForOffers": True, **told}))

    def order(self, name: str | None = None, **change: Any) -> None:
        told = {"channelId": "pizza", "queueId": self.queue, **change}
        self.done("job", "create", name or self.job, json.dumps(told))

    def status(self, name: str | None = None) -> str:
        return str(self.json("job", "show", name or self.job)["status"])


@pytest.fixture(params=WAYS)
def kitchen(site: Site, request: pytest.FixtureRequest) -> Kitchen:
    return Kitchen(site, str(request.param))


@pytest.fixture
def here(site: Site) -> Kitchen:
    return Kitchen(site, "database")


def test_a_job_goes_its_way_by_commands(kitchen: Kitchen) -> None:
    kitchen.hire()
    kitchen.order()
    wait = ("--worker", kitchen.worker, "--wait-seconds", "30")
    (offer,) = kitchen.json("offer", "list", *wait)["items"]
    taken = kitchen.json("offer", "accept", kitchen.worker, offer["offer_id"])
    kitchen.done("job", "complete", kitchen.job, taken["assignmentId"], "--note", "done")
    kitchen.done("job", "close", kitchen.job, taken["assignmentId"])
    assert kitchen.status() == "closed"
    assert kitchen.run("job", "cancel", kitchen.job).code == 4
    assert kitchen.json("job", "list", "--queue-id", kitchen.queue)["items"]
    assert kitchen.run("job", "show", "missing").code == 3


def test_explain_says_why_a_job_waits(kitchen: Kitchen) -> None:
    kitchen.hire(labels={"English": 3})
    english = {"key": "English", "labelOperator": "greaterThan", "value": 5}
    kitchen.order(requestedWorkerSelectors=[english])
    said = kitchen.done("explain", "job", kitchen.job).out
    assert f"Job {kitchen.job} is queued in queue {kitchen.queue}, at place 1" in said
    assert "a selector does not hold" in said
    assert "English > 5" in said
    assert kitchen.worker in said
    found = kitchen.json("explain", "job", kitchen.job)
    assert found["verdict"] == "nobody"
    assert kitchen.run("explain", "job", "missing").code == 3


def test_explain_says_what_a_worker_could_get(kitchen: Kitchen) -> None:
    kitchen.order(channelId="soup")
    kitchen.hire()
    said = kitchen.done("explain", "worker", kitchen.worker).out
    assert f"Worker {kitchen.worker} is active, 0% of its capacity is taken" in said
    assert "does not serve the channel" in said
    assert kitchen.json("explain", "worker", kitchen.worker)["eligible_for"] == []


def test_classify_tells_the_steps_of_a_dry_run(kitchen: Kitchen) -> None:
    policy = {
        "fallbackQueueId": kitchen.queue,
        "workerSelectorAttachments": [
            {"kind": "passThrough", "key": "City", "labelOperator": "equal"},
            {"kind": "passThrough", "key": "Level", "labelOperator": "greaterThanOrEqual"},
        ],
        "prioritizationRule": {"kind": "expression", "expression": "If(job.Vip = true, 9, 1)"},
    }
    kitchen.done("classification-policy", "create", kitchen.policy, json.dumps(policy))
    labels = ("--label", "Vip=true", "--label", "City=Vigo", "--label", "Level=7")
    said = kitchen.done("classify", kitchen.policy, *labels).out
    assert f"Queue {kitchen.queue} (it is the fallback), priority 9." in said
    assert 'City = "Vigo"' in said
    assert "Level >= 7" in said
    assert "/prioritizationRule" in said
    found = kitchen.json("classify", kitchen.policy, *labels, "--queue-id", "named")
    assert (found["queue_id"], found["queue_by"]) == ("named", "job")
    assert kitchen.run("classify", kitchen.policy, "--label", "Vip").code == 2


def test_a_classification_that_would_fail_says_why(kitchen: Kitchen) -> None:
    kitchen.done("classification-policy", "create", kitchen.policy, "{}")
    said = kitchen.done("classify", kitchen.policy).out
    assert "It would fail:" in said
    assert "fallbackQueueId" in said


def test_channels_are_named_and_listed(kitchen: Kitchen) -> None:
    kitchen.done("channel", "create", "MakePizza", "--name", "Make a pizza")
    said = kitchen.done("channel", "list").out
    assert "Make a pizza" in said
    assert "AcsVoiceChannel" in said


def test_watch_shows_how_queues_stand(kitchen: Kitchen) -> None:
    kitchen.order()
    kitchen.order(f"{kitchen.job}-2")
    kitchen.hire(availableForOffers=False)
    head, row = kitchen.done("watch", "--queue", kitchen.queue, "--once").out.splitlines()
    assert head.split() == ["QUEUE", "WAITING", "LONGEST_WAIT", "OFFERS", "AT_WORK", "ACTIVE",
                            "DRAINING", "INACTIVE"]  # fmt: skip
    assert row.split()[:2] == [kitchen.queue, "2"]
    assert row.split()[-1] == "1"


def test_watch_goes_on_until_it_is_interrupted(here: Kitchen) -> None:
    watching = here.site.cli.spawn(
        "router", "watch", "--queue", here.queue, "--every", "0.1", "-o", "json"
    )
    out = watching.process.stdout
    assert out is not None
    assert json.loads(out.readline())["items"][0]["waiting"] == 0
    here.order()
    while json.loads(out.readline())["items"][0]["waiting"] != 1:
        pass
    watching.process.terminate()
    watching.end()


def test_a_terminal_shows_the_queues_in_place(here: Kitchen) -> None:
    watching = here.site.cli.on_terminal("router", "watch", "--every", "0.1")
    watching.read_until("waiting")
    watching.process.send_signal(signal.SIGINT)
    assert watching.end() == 128 + signal.SIGINT


def desk(kitchen: Kitchen, *arguments: str, over_http: bool = False) -> Result:
    settings = {"url": kitchen.site.host.url, "key": PRESET} if over_http else {}
    if over_http:
        settings["database_url"] = ""
    return kitchen.site.cli("router", "work", kitchen.worker, *arguments, **settings)


@pytest.mark.parametrize("over_http", [False, True], ids=WAYS)
def test_a_command_does_the_jobs_of_a_worker(here: Kitchen, over_http: bool) -> None:
    here.hire()
    for number in range(3):
        here.order(f"{here.job}-{number}", labels={"size": number})
    # In one write, also where output is not buffered: several run at a time.
    echo = "import sys; sys.stdout.write(sys.stdin.read().strip() + chr(10))"
    program = f"{sys.executable} -c '{echo}'"
    done = desk(here, "--auto-accept", "--command", program, "--count", "3", over_http=over_http)
    assert done.code == 0, done
    jobs = sorted((json.loads(line) for line in done.out.splitlines()), key=lambda x: x["job_id"])
    assert [one["job_id"] for one in jobs] == [f"{here.job}-{number}" for number in range(3)]
    assert [one["job_labels"] for one in jobs] == [{"size": number} for number in range(3)]
    assert {here.status(one["job_id"]) for one in jobs} == {"closed"}


def test_a_command_that_fails_gives_its_job_back(here: Kitchen) -> None:
    here.hire()
    here.order()
    done = desk(here, "--auto-accept", "--command", "exit 3", "--count", "1")
    assert done.code == 4, done
    assert "ended with 3" in done.err
    assert here.status() == "queued"
    (assignment,) = here.json("job", "show", here.job)["assignments"].values()
    assert assignment["unassignedAt"]


def test_without_a_command_accepted_jobs_are_written_down(here: Kitchen) -> None:
    here.hire(availableForOffers=False)
    here.order()
    done = desk(here, "--auto-accept", "--register", "--count", "1")
    assert json.loads(done.out)["job_id"] == here.job
    assert here.status() == "assigned"
    assert here.json("worker", "show", here.worker)["state"] == "draining"


def test_a_signal_lets_a_running_command_end(here: Kitchen) -> None:
    here.hire()
    here.order()
    folder = here.site.cli.folder
    begun, go = folder / f"{here.job}.begun", folder / f"{here.job}.go"
    program = f"touch {begun}; until test -e {go}; do sleep 0.05; done"
    working = here.site.cli.spawn(
        "router", "work", here.worker, "--auto-accept", "--command", program
    )
    until(begun.exists, "the command runs")
    working.send(signal.SIGINT)
    go.touch()
    assert working.end().code == 0
    assert here.status() == "closed"


@pytest.mark.anyio
async def test_an_answer_that_was_lost_is_asked_for_again(
    here: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Flaky:
        """A way to a host whose every first answer is lost."""

        def __init__(self, inner: Calls) -> None:
            self._inner = inner
            self.lost: set[str] = set()

        async def call(
            self, operation: Operation, values: Any, reason: str | None = None
        ) -> OperationReply:
            reply = await self._inner.call(operation, values)
            name = operation.name
            if name not in self.lost and name not in ("router.offers.list", "router.workers.get"):
                self.lost.add(name)
                raise OutcomeUnknown("the connection broke")
            return reply

    monkeypatch.setattr(router_desk, "AGAIN_SECONDS", 0.0)
    await anyio.to_thread.run_sync(here.hire)
    await anyio.to_thread.run_sync(here.order)
    async with over_http(here.site.host.url, PRESET) as calls:
        flaky = Flaky(calls)
        desk = router_desk.TerminalDesk(flaky, here.worker)
        assert await router_desk.serve(desk, asyncio.Event(), "true", 1) == 0
    assert flaky.lost == {"router.offers.accept", "router.jobs.complete", "router.jobs.close"}
    assert await anyio.to_thread.run_sync(here.status) == "closed"


def test_a_desk_without_a_terminal_or_a_worker_is_refused(here: Kitchen) -> None:
    refused = desk(here)
    assert (refused.code, "terminal" in refused.err) == (2, True)
    assert desk(here, "--count", "1").code == 2
    assert desk(here, "--auto-accept").code == 3


def test_keys_answer_offers_at_a_terminal(here: Kitchen) -> None:
    here.hire()
    terminal = here.site.cli.on_terminal("router", "work", here.worker)
    terminal.read_until("offers appear by themselves")
    here.order()
    terminal.read_until("offered")
    terminal.type("a")
    terminal.read_until(f"{here.job}: accept")
    assert here.status() == "assigned"
    terminal.type("x")
    terminal.read_until("complete it first")
    terminal.type("c")
    terminal.read_until(f"{here.job}: complete")
    terminal.type("x")
    terminal.read_until(f"{here.job}: close")
    assert here.status() == "closed"
    terminal.type("q")
    assert terminal.end() == 0


def test_an_offer_is_declined_at_a_terminal(here: Kitchen) -> None:
    here.hire()
    here.order()
    terminal = here.site.cli.on_terminal("router", "work", here.worker)
    terminal.read_until("offered")
    terminal.type("d")
    terminal.read_until(f"{here.job}: decline")
    assert here.json("explain", "job", here.job)["offers"][0]["state"] == "declined"
    terminal.type("q")
    assert terminal.end() == 0


def test_a_configuration_is_imported_from_a_running_service(
    here: Kitchen, relevo_databases: TestDatabases
) -> None:
    here.hire()
    here.order(channelId="soup")
    url = relevo_databases.create()
    other = {"database_url": url}
    told = ("router", "import", "--endpoint", here.site.host.url, "--key", PRESET)
    cli: Cli = here.site.cli
    tried = cli(*told, "--dry-run", "-o", "json", **other)
    assert (tried.code, tried.json["dry_run"]) == (0, True), tried
    assert cli("router", "queue", "show", here.queue, **other).code == 3
    done = cli(*told, "--workers", "--jobs", **other)
    assert done.code == 0, done
    assert "queues" in done.out
    assert cli("router", "job", "show", here.job, **other).code == 0
    again = cli(*told, "--workers", "--jobs", "-o", "json", **other)
    assert set(again.json["counts"]["queues"]) == {"unchanged"}
    hidden = cli(*told[:4], "--jobs", "-o", "json", import_key=PRESET, **other)
    assert hidden.code == 0
    relevo_databases.drop(url)


def test_an_import_with_a_wrong_key_takes_nothing(here: Kitchen) -> None:
    wrong = "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd28="
    refused = here.run("import", "--endpoint", here.site.host.url, "--key", wrong)
    assert refused.code == 5, refused
    assert wrong not in refused.err
