"""What the seed says of the job router, through the native API: cooks, offers, modes, slips."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.errors import InvalidValue
from relevo.router.jobs import selector
from relevo.router.storage import MANAGED_CHANNELS

if TYPE_CHECKING:
    from relevo.router.service import Router
    from tests.router.floor import Floor

pytestmark = pytest.mark.anyio
AcsChatChannel, AcsVoiceChannel, _ = MANAGED_CHANNELS
QUEUES = {"MakePizza": "PizzaOrders", "MakeDonair": "DonairOrders", "MakeBurger": "BurgerOrders"}
COSTS = {"MakePizza": 50, "MakeDonair": 33, "MakeBurger": 25}
LABELS = {
    "Location": "New Jersey", "Language": "English", "PizzaMaker": 7, "DonairMaker": 10,
    "BurgerMaker": 5,
}  # fmt: skip


async def kitchen(router: Router, *, cook: bool = True) -> None:
    await router.set_distribution_policy("fair", offer_ttl=timedelta(minutes=5))
    for queue in QUEUES.values():
        await router.set_queue(queue, distribution_policy="fair")
    if cook:
        await register(router)


async def register(router: Router) -> None:
    await router.register_worker(
        "PizzaCook", queues=list(QUEUES.values()), total_capacity=100, labels=LABELS,
        channels=COSTS, name="The cook",
    )  # fmt: skip


async def order(floor: Floor, channel: str, job_id: str) -> None:
    await floor.router.create_job(channel, queue=QUEUES[channel], job_id=job_id)


@pytest.mark.parametrize(
    ("pizzas", "donairs", "burgers", "score"),
    [(2, 0, 0, 100), (0, 3, 0, 99), (1, 1, 0, 83), (0, 2, 1, 91), (0, 0, 4, 100), (0, 1, 2, 83)],
)
async def test_the_cook_takes_just_so_many_jobs_at_once(
    floor: Floor, pizzas: int, donairs: int, burgers: int, score: int
) -> None:  # J1
    await kitchen(floor.router)
    wanted = ["MakePizza"] * pizzas + ["MakeDonair"] * donairs + ["MakeBurger"] * burgers
    for n, channel in enumerate(wanted):
        await order(floor, channel, f"j{n}")
        await floor.accepted("PizzaCook", f"j{n}")
    assert (await floor.router.get_worker("PizzaCook")).load_ratio == score / 100
    for channel in COSTS:  # one more of any does not fit
        await order(floor, channel, f"more-{channel}")
    await floor.settled()
    cook = await floor.router.get_worker("PizzaCook")
    assert (cook.offers, len(cook.assigned_jobs)) == ((), len(wanted))
    await floor.check()


async def test_edmonton_takes_three_chats_or_one_call(floor: Floor) -> None:  # J1
    await floor.router.set_distribution_policy("fair", offer_ttl=300.0)
    for queue in ("XBOX_Queue", "XBOX_Escalation_Queue"):
        await floor.router.set_queue(queue, distribution_policy="fair")
    await floor.router.register_worker(
        "EdmontonWorker", queues=["XBOX_Queue", "XBOX_Escalation_Queue"], total_capacity=100,
        labels={"Location": "Edmonton", "XBOX_Hardware": 7},
        channels={AcsVoiceChannel: 100, AcsChatChannel: 33},
    )  # fmt: skip
    for n in range(4):
        await floor.router.create_job(AcsChatChannel, queue="XBOX_Queue", job_id=f"chat-{n}")
    await floor.router.create_job(AcsVoiceChannel, queue="XBOX_Escalation_Queue", job_id="call")
    await floor.offered("EdmontonWorker", "chat-2")
    await floor.settled()
    assert set(await floor.offers("EdmontonWorker")) == {"chat-0", "chat-1", "chat-2"}
    for n in range(4):
        await floor.router.cancel_job(f"chat-{n}")
    await floor.offered("EdmontonWorker", "call")


async def test_the_sample_job_asks_for_a_label_that_the_cook_does_not_have(floor: Floor) -> None:
    """The seed's second slip: `English` > 5 where the cook has `Language` = "English"."""
    await kitchen(floor.router)
    donair = selector("DonairMaker", "GreaterThanEqual", 8)
    await floor.router.create_job(
        "MakeDonair", queue="DonairOrders", job_id="slip", priority=1,
        channel_reference="ReceiptNumber_555123",
        selectors=[donair, selector("English", "GreaterThan", 5)],
    )  # fmt: skip
    await floor.router.create_job(
        "MakeDonair", queue="DonairOrders", job_id="meant",
        selectors=[donair, selector("Language", "equal", "English")],
    )  # fmt: skip
    await floor.offered("PizzaCook", "meant")
    await floor.settled()
    assert set(await floor.offers("PizzaCook")) == {"meant"}
    assert await floor.status("slip") == "queued"


async def test_strict_channels_show_the_first_slip(relevo_url: str) -> None:
    """The seed defines `MakeDonairs` and uses `MakeDonair`."""
    told = {"database_url": relevo_url, "router_strict_channels": True}
    async with App(settings=settings.load(told, environ={})) as app:
        await kitchen(app.router, cook=False)
        await app.router.define_channel("MakePizza", "Make a pizza")
        await app.router.define_channel("MakeDonairs", "Make a donair")
        await app.router.define_channel("MakeBurgers", "Make a burger")
        with pytest.raises(InvalidValue):
            await register(app.router)
        with pytest.raises(InvalidValue):
            await app.router.create_job("MakeDonair", queue="DonairOrders")
        await app.router.define_channel("MakeDonair", "Make a donair")
        await app.router.define_channel("MakeBurger", "Make a burger")
        await register(app.router)
        await app.router.create_job("MakeDonair", queue="DonairOrders")
        await app.router.create_job(AcsChatChannel, queue="DonairOrders")


async def test_a_worker_is_active_draining_and_inactive(floor: Floor) -> None:
    await kitchen(floor.router)
    assert (await floor.router.get_worker("PizzaCook")).state == "active"
    await order(floor, "MakePizza", "j")
    assignment = await floor.accepted("PizzaCook", "j")
    assert (await floor.router.deregister_worker("PizzaCook")).state == "draining"
    await floor.finish("j", assignment)
    cook = await floor.router.get_worker("PizzaCook")
    assert (cook.state, cook.tags) == ("inactive", {"Name": "The cook"})


async def test_the_five_events_of_an_offer(floor: Floor) -> None:
    await kitchen(floor.router)
    cook = "PizzaCook"
    await order(floor, "MakePizza", "a")
    await floor.router.accept_offer(cook, (await floor.offered(cook, "a")).offer_id)
    await order(floor, "MakePizza", "b")
    await floor.router.decline_offer(cook, (await floor.offered(cook, "b")).offer_id)
    await order(floor, "MakeBurger", "c")
    await floor.offered(cook, "c")
    await floor.router.cancel_job("c")
    await order(floor, "MakeBurger", "d")
    await floor.offered(cook, "d")
    await floor.clock.advance(timedelta(minutes=6))
    await floor.until(lambda: _is_off(floor), "the cook is taken for absent")
    told = await floor.told(f"worker/{cook}")
    issued = "offer.issued"
    assert told == [
        "worker.registered", issued, "offer.accepted", issued, "offer.declined", issued,
        "offer.revoked", issued, "offer.expired", "worker.deregistered",
    ]  # fmt: skip


async def _is_off(floor: Floor) -> bool:
    return (await floor.router.get_worker("PizzaCook")).state != "active"


@pytest.mark.parametrize(
    ("mode", "first"), [("longestIdle", "a"), ("roundRobin", "a"), ("bestWorker", "c")]
)
async def test_the_three_modes(floor: Floor, mode: str, first: str) -> None:
    await floor.open(mode={"kind": mode})
    for name, skill in (("a", 1), ("b", 1), ("c", 9)):
        await floor.worker(name, labels={"skill": skill})
    await floor.job(selectors=[selector("skill", ">=", 1)])
    await floor.offered(first)


async def test_a_worker_is_looked_for_when_it_registers_closes_or_declines(floor: Floor) -> None:
    await kitchen(floor.router, cook=False)
    for n in range(4):
        await order(floor, "MakePizza", f"j{n}")
    await register(floor.router)  # registers
    await floor.finish("j0", await floor.accepted("PizzaCook", "j0"))  # closes
    await floor.offered("PizzaCook", "j1")
    offer = await floor.offered("PizzaCook", "j2")
    await floor.router.decline_offer("PizzaCook", offer.offer_id)  # declines
    await floor.offered("PizzaCook", "j3")
