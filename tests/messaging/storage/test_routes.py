"""Random sends to a topic whose rules and policies change, by several hosts: every subscription
gets the copies that its rules of that moment say."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.messaging import Aging, Fifo, Message, SqlRule, Strict, Weighted
from tests.conftest import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.messaging import Topic

pytestmark = pytest.mark.anyio

FILTERS: dict[str, Callable[[int, str], bool]] = {
    "n % 2 = 0": lambda n, tier: n % 2 == 0,
    "n > 5 and tier = 'paying'": lambda n, tier: n > 5 and tier == "paying",
    "tier like 'p%'": lambda n, tier: tier.startswith("p"),
    "missing = 1": lambda n, tier: False,
}
RAISED = "set sys.Priority = 9"
"""An action, with which a rule makes a copy of its own."""
TIERS = ("paying", "plain", "guest")
POLICIES = (Fifo(), Strict(), Aging(), Weighted())
STEPS = ("send",) * 5 + ("rule",) * 3 + ("unrule", "receive", "receive", "switch")
Copy = tuple[int, str]
"""The body and the class."""


class Routes:
    """Two hosts that send to a topic, and what its subscriptions ought to have."""

    def __init__(self, apps: list[App], name: str, random: Random) -> None:
        self.random = random
        self.topics: list[Topic] = [app.topic(name) for app in apps]
        self.subscriptions = [[one.subscription(n) for n in "ab"] for one in self.topics]
        self.rules: list[dict[str, tuple[str, bool]]] = [{}, {}]
        """Of each subscription: the filter of each rule, and whether it has an action."""
        self.waiting: list[Counter[Copy]] = [Counter(), Counter()]
        self.sent = 0

    async def open(self) -> None:
        for n, one in enumerate(self.subscriptions[0]):
            await one.set_rule("first", "n % 2 = 0")
            await one.remove_rule("$Default")
            self.rules[n]["first"] = ("n % 2 = 0", False)

    async def send(self) -> None:
        messages = []
        for _ in range(self.random.randint(1, 4)):
            n, tier, priority = self.sent, self.random.choice(TIERS), self.random.randrange(10)
            messages.append(
                Message(body=n, priority=priority, properties={"n": n % 10, "tier": tier},
                        fairness_key=tier)
            )  # fmt: skip
            self.sent += 1
            of = "low" if priority < 3 else "normal" if priority < 7 else "high"
            for waiting, rules in zip(self.waiting, self.rules, strict=True):
                fits = [acts for text, acts in rules.values() if FILTERS[text](n % 10, tier)]
                waiting[n, of] += False in fits  # one copy for all plain rules; M21
                waiting[n, "high"] += fits.count(True)
        await self.random.choice(self.topics).send_many(messages)

    async def rule(self) -> None:
        n, name = self.random.randrange(2), self.random.choice(("first", "second", "third"))
        text, acts = self.random.choice(list(FILTERS)), self.random.random() < 0.4
        given = SqlRule(text, RAISED) if acts else text
        await self.random.choice(self.subscriptions)[n].set_rule(name, given)
        self.rules[n][name] = (text, acts)

    async def unrule(self) -> None:
        n = self.random.randrange(2)
        if self.rules[n]:
            name = self.random.choice(list(self.rules[n]))
            await self.random.choice(self.subscriptions)[n].remove_rule(name)
            del self.rules[n][name]

    async def receive(self) -> None:
        n, wanted = self.random.randrange(2), self.random.randint(1, 5)
        found = await self.random.choice(self.subscriptions)[n].receive(wanted)
        assert len(found) == min(wanted, self.waiting[n].total())
        for message in found:
            self.waiting[n][message.body, message.priority_class] -= 1
            await message.complete()

    async def switch(self) -> None:
        policy: Any = self.random.choice(POLICIES)
        await self.subscriptions[0][self.random.randrange(2)].update(ordering=policy)

    async def check(self) -> None:
        for n, one in enumerate(self.subscriptions[1]):
            seen = Counter((m.body, m.priority_class) for m in await one.peek(limit=1_000))
            assert seen == +self.waiting[n]  # M1, M21, M32


async def test_copies_are_those_of_the_rules_at_the_moment(app: App, relevo_url: str) -> None:
    async with App(relevo_url) as other:
        for seed in range(max(1, EXAMPLES // 10)):
            random = Random(seed)
            routes, done = Routes([app, other], f"news-{seed}", random), list[str]()
            await routes.open()
            for _ in range(60):
                done.append(random.choice(STEPS))
                try:
                    await getattr(routes, done[-1])()
                    await routes.check()
                except AssertionError as error:
                    error.add_note(f"seed {seed}, {done}")
                    raise
