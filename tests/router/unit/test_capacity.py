"""Capacity: the seed's workers, limits, and what is lowered while it is used."""

from __future__ import annotations

import pytest

from relevo.router.core.capacity import ChannelTerms, load_ratio, slots
from relevo.router.matching.index import Index
from relevo.router.matching.situation import Decision, JobState, QueueState, WorkerState

DISHES = ("MakePizza", "MakeDonair", "MakeBurger")
COOK = WorkerState(
    id="PizzaCook",
    queues=frozenset({"PizzaOrders", "DonairOrders", "BurgerOrders"}),
    capacity=100,
    labels={"Location": "New Jersey", "Language": "English", "PizzaMaker": 7},
    channels={
        "MakePizza": ChannelTerms(50),
        "MakeDonair": ChannelTerms(33),
        "MakeBurger": ChannelTerms(25),
    },
)
EDMONTON = WorkerState(
    id="EdmontonWorker",
    queues=frozenset({"XBOX_Queue"}),
    capacity=100,
    labels={"Location": "Edmonton", "XBOX_Hardware": 7},
    channels={"AcsVoiceChannel": ChannelTerms(100), "AcsChatChannel": ChannelTerms(33)},
)


def offers(worker: WorkerState, channels: list[str]) -> list[str]:
    """Return the channels of the offers that a worker gets when these jobs come one by one."""
    index = Index()
    queue = min(worker.queues)
    index.put_queue(QueueState(id=queue))
    index.put_worker(worker)
    got = []
    for number, channel in enumerate(channels):
        index.put_job(JobState(id=f"{number}", queue=queue, channel=channel, arrival=number))
        for one in index.decide(100):
            assert isinstance(one, Decision)
            got.append(one.channel)
    return got


@pytest.mark.parametrize(
    ("load", "used"),
    [
        (["MakePizza"] * 2, 100),
        (["MakeDonair"] * 3, 99),
        (["MakePizza", "MakeDonair"], 83),
        (["MakeDonair", "MakeDonair", "MakeBurger"], 91),
        (["MakeBurger"] * 4, 100),
        (["MakeDonair", "MakeBurger", "MakeBurger"], 83),
    ],
)
def test_the_pizza_cook_takes_the_seeds_full_loads_and_nothing_more(
    load: list[str], used: int
) -> None:
    assert sum(COOK.channels[one].cost for one in load) == used
    assert offers(COOK, load) == load
    for one_more in DISHES:
        assert offers(COOK, [*load, one_more]) == load  # J1


def test_the_edmonton_worker_takes_three_chats_or_one_call() -> None:
    chat, call = "AcsChatChannel", "AcsVoiceChannel"
    assert offers(EDMONTON, [chat] * 4) == [chat] * 3
    assert offers(EDMONTON, [call, call, chat]) == [call]
    assert offers(EDMONTON, [chat, call]) == [chat]


def test_one_voice_two_chats_and_two_mails_at_once() -> None:
    worker = WorkerState(
        id="w",
        queues=frozenset({"q"}),
        capacity=100,
        channels={
            "voice": ChannelTerms(60),
            "chat": ChannelTerms(10, 2),
            "mail": ChannelTerms(10, 2),
        },
    )
    wanted = ["chat", "mail", "voice", "chat", "chat", "mail", "mail", "voice"]
    assert offers(worker, wanted) == ["chat", "mail", "voice", "chat", "mail"]


def test_what_costs_nothing_always_fits_and_what_costs_too_much_never() -> None:
    channels = {"free": ChannelTerms(0), "dear": ChannelTerms(2)}
    worker = WorkerState(id="w", queues=frozenset({"q"}), channels=channels, capacity=1)
    assert offers(worker, ["free"] * 50 + ["dear"]) == ["free"] * 50


def test_lowered_capacity_keeps_what_runs_and_takes_nothing_until_it_fits() -> None:
    channels = {"chat": ChannelTerms(30), "free": ChannelTerms(0)}
    worker = WorkerState(id="w", queues=frozenset({"q"}), channels=channels, capacity=50, used=60)
    assert load_ratio(worker.used, worker.capacity) == 1.2
    assert offers(worker, ["chat", "free"]) == []  # J1


def test_slots_are_counted_by_the_cheapest_way_to_fill_a_worker() -> None:
    assert slots(COOK.capacity, COOK.channels) == 4
    assert slots(100, {"chat": ChannelTerms(10, 2), "voice": ChannelTerms(60)}) == 2
    assert slots(100, {"free": ChannelTerms(0)}) == 1
    assert slots(100, {"free": ChannelTerms(0, 7)}) == 7
    assert slots(1, {"dear": ChannelTerms(2)}) == 0
    assert slots(1, {}) == 0
