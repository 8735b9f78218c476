"""One load at a time, results no older than promised, failures remembered."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relevo.governance.core.ages import AgeRules, Ages, Fail, LoadFirst, Serve, WaitForLoad
from tests.conftest import examples

RULES = AgeRules(ttl=10.0, refresh=3.0, stale=5.0, keys_max=3)


class Caches(RuleBasedStateMachine):
    """Callers of two keys whose loads succeed, fail or are canceled."""

    def __init__(self) -> None:
        super().__init__()
        self.ages = Ages(RULES)
        self.now = 0.0
        self.loading: dict[str, float] = {}
        self.loaded_at: dict[str, float] = {}
        self.failed_at: dict[str, float] = {}

    def begin(self, key: str) -> None:
        assert key not in self.loading  # I47
        self.loading[key] = self.now

    @rule(key=st.sampled_from("ab"))
    def ask(self, key: str) -> None:
        match self.ages.ask(key, self.now):
            case LoadFirst():
                self.begin(key)
            case WaitForLoad():
                assert key in self.loading
            case Serve(value=value, age=age, load=load):
                assert value == self.loaded_at[key]
                assert age == self.now - value
                assert age < RULES.ttl + RULES.stale
                if age >= RULES.ttl:  # stale only beside a failure
                    assert self.now - self.failed_at[key] < 1.0
                if load:
                    assert age >= RULES.ttl - 3.0
                    self.begin(key)
            case Fail():
                assert self.now - self.failed_at[key] < 1.0

    @rule()
    def timer(self) -> None:
        for key in [*self.ages.due(self.now), *self.ages.preload(("a",), self.now)]:
            self.begin(key)

    @rule(data=st.data(), how=st.sampled_from(["loaded", "failed", "canceled"]))
    def load_ends(self, data: st.DataObject, how: str) -> None:
        if not self.loading:
            return
        key = data.draw(st.sampled_from(sorted(self.loading)))
        began = self.loading.pop(key)
        if how == "loaded":
            self.ages.loaded(key, began, self.now)
            self.loaded_at[key] = began
        elif how == "failed":
            self.failed_at[key] = self.now
            answer = self.ages.failed(key, "down", self.now)
            old = self.now - self.loaded_at.get(key, -100.0) >= RULES.ttl + RULES.stale
            assert isinstance(answer, Fail if old else Serve)
        else:
            self.ages.canceled(key)

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def forget(self) -> None:
        for key in self.ages.forget_old(self.now):
            assert self.now - self.loaded_at.pop(key, -100.0) >= RULES.ttl + RULES.stale

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.ages) <= RULES.keys_max


TestCaches = Caches.TestCase
TestCaches.settings = settings(max_examples=examples(200), stateful_step_count=40)


def test_a_key_in_use_is_loaded_ahead_and_an_unused_one_is_not() -> None:
    ages = Ages(AgeRules(ttl=60, refresh=5))
    for key in ("used", "idle"):
        ages.ask(key, 0.0)
        ages.loaded(key, 1, 0.1)
    ages.ask("used", 30.0)
    assert ages.due(54.0) == []
    assert ages.due(56.0) == ["used"]
    assert ages.due(57.0) == []


def test_an_invalidated_value_is_not_served() -> None:
    ages = Ages(RULES)
    ages.ask("a", 0.0)
    ages.loaded("a", 1, 0.0)
    ages.invalidate("a")
    assert ages.ask("a", 0.1) == LoadFirst()
