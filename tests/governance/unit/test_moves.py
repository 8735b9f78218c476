"""Moves under uses: no use of the old and the new resource of a partition at the same time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relevo.errors import Conflict, InUse, InvalidValue, NotFound
from relevo.governance.core import moves
from relevo.governance.core.assignments import Catalogue, Policy, Resource
from relevo.governance.core.moves import Copy, Move, MoveRules, PointTo, Reader
from relevo.governance.core.rebalancing import plan_rebalance
from relevo.governance.core.resolutions import Notice, Resolutions, Use
from relevo.governance.errors import UnassignedEntity
from tests.conftest import examples

RULES = MoveRules(max_stale=5.0, use_ttl=20.0, margin=1.0)
HOSTS = ("a", "b", "c")
ENTITIES = ("ana", "bob", "eva")


class Moves(RuleBasedStateMachine):
    """A resolver that restarts, hosts with caches that are cut off from it, and uses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.catalogue = Catalogue("hash")
        for resource in ("db1", "db2"):
            self.catalogue.add_resource(Resource(resource))
        for partition in ("p", "q"):
            self.catalogue.add_partition(partition, on="db1")
        self.move: Move | None = None
        self.readers: dict[str, Reader] = {}
        self.complete = True
        self.caches = {host: Resolutions(RULES) for host in HOSTS}
        self.uses: dict[tuple[str, int], Use] = {}
        self.generations: dict[str, int] = {}

    @rule(host=st.sampled_from(HOSTS), entity=st.sampled_from(ENTITIES), late=st.floats(0, 2.0))
    def resolve(self, host: str, entity: str, late: float) -> None:
        """An answer that may arrive later than others; what it says is of `asked_at`."""
        resolution = self.catalogue.resolve(entity)
        if self.move is not None and self.move.subject == resolution.partition:
            notice = Notice(resolution.partition, self.move.generation, moving=True)
            self.caches[host].learn([notice], self.now)
            return
        assert resolution.generation >= self.generations.get(entity, 0)  # they only grow
        self.generations[entity] = resolution.generation
        self.readers[host] = Reader(host, self.now)
        asked_at, self.now = self.now, self.now + late
        self.caches[host].put(resolution, asked_at)

    @rule(host=st.sampled_from(HOSTS), entity=st.sampled_from(ENTITIES))
    def use(self, host: str, entity: str) -> None:
        match self.caches[host].begin(entity, self.now):
            case Use() as use:
                assert use.resolution.entity == entity  # I39
                self.uses[host, use.number] = use

    @rule(data=st.data())
    def use_ends(self, data: st.DataObject) -> None:
        if self.uses:
            host, number = data.draw(st.sampled_from(sorted(self.uses)))
            assert self.caches[host].end(number)
            del self.uses[host, number]

    @rule(seconds=st.floats(0, 12.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for host, cache in self.caches.items():
            for use in cache.overdue(self.now):
                cache.end(use.number)
                del self.uses[host, use.number]

    @rule(host=st.sampled_from(HOSTS))
    def host_refreshes(self, host: str) -> None:
        """It learns what has changed, and reports what it does not use any more."""
        moving = None if self.move is None else self.move.subject
        notices = [
            Notice(one.name, one.generation, one.name == moving, one.origins)
            for one in self.catalogue.partitions.values()
        ]
        notices += [
            Notice(name, generation, moving=False)
            for name, generation in self.catalogue.removed.items()
        ]
        cache = self.caches[host]
        resources = {one.name: one.generation for one in self.catalogue.resources.values()}
        cache.learn(notices, self.now, complete=True, resources=resources)
        for notice in cache.quiet_moves():
            if self.move is not None and notice.subject == self.move.subject:
                self.move = moves.report(self.move, host, notice.generation)

    @rule(name=st.sampled_from(["db1", "db2"]), data=st.integers(0, 3))
    def resource_changes(self, name: str, data: int) -> None:
        """Resolutions from before are not used again."""
        self.catalogue.add_resource(Resource(name, data))

    @rule(
        what=st.sampled_from(["split", "merge", "pin", "detach"]), data=st.data(),
        entity=st.sampled_from(ENTITIES),
    )  # fmt: skip
    @precondition(lambda self: self.move is None)
    def entities_change_their_partition(self, what: str, data: st.DataObject, entity: str) -> None:
        """They keep their resource."""
        names = sorted(self.catalogue.partitions)
        first, second = (data.draw(st.sampled_from(names)) for _ in range(2))
        before = self.catalogue.resolve(entity)
        try:
            match what:
                case "split":
                    self.catalogue.split(first, f"s{self.catalogue.version}")
                case "merge":
                    self.catalogue.merge(first, second)
                case "pin":
                    if before.resource.name == self.catalogue.partition(first).resource:
                        self.catalogue.pin(entity, first)
                case "detach":
                    own = self.catalogue.own_partition(entity)
                    assert list(self.catalogue.entities_of(own.name)) == [entity]
        except (Conflict, InvalidValue):
            return
        after = self.catalogue.resolve(entity)
        assert after.resource.name == before.resource.name
        assert after.generation >= before.generation

    @rule(data=st.data())
    @precondition(lambda self: self.move is None)
    def move_begins(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.catalogue.partitions)))
        source = self.catalogue.partition(partition).resource
        marked = self.catalogue.touch(partition)
        self.move = moves.begin(
            subject=partition, source=source, target="db2" if source == "db1" else "db1",
            generation=marked.generation, now=self.now, rules=RULES,
        )  # fmt: skip

    @rule(copy_fails=st.booleans())
    @precondition(lambda self: self.move is not None)
    def resolver_works(self, copy_fails: bool) -> None:
        assert self.move is not None
        self.move, what = moves.step(
            self.move, self.readers, self.now, readers_are_complete=self.complete
        )
        match what:
            case Copy():  # I40: nobody uses what is copied
                subject = self.move.subject
                here = {subject, *self.catalogue.entities_of(subject)}
                for one in self.uses.values():
                    assert not {one.resolution.partition, one.resolution.entity} & here
                self.move = (
                    moves.failed(self.move, "disk full") if copy_fails else moves.copied(self.move)
                )
            case PointTo(resource=resource):
                before = self.catalogue.partition(self.move.subject)
                after = self.catalogue.point(
                    self.move.subject, resource, is_quiet=resource == self.move.target
                )
                assert after.generation > max(before.generation, self.move.generation)
                self.move = None
            case _:
                assert self.now < self.move.deadline

    @rule(host=st.sampled_from(HOSTS))
    def host_ends(self, host: str) -> None:
        """A host whose lease has passed holds nothing; another life has an empty cache."""
        self.uses = {key: use for key, use in self.uses.items() if key[0] != host}
        self.caches[host] = Resolutions(RULES)
        self.readers[host] = Reader(host, self.now, ended=True)

    @rule()
    def resolver_restarts(self) -> None:
        """What is stored is there; to whom it had given resolutions is not."""
        self.readers, self.complete = {}, False

    @invariant()
    def no_two_resources_of_a_partition_or_an_entity_are_in_use(self) -> None:
        used: dict[tuple[str, str], set[str]] = {}
        for use in self.uses.values():
            found = use.resolution
            for subject in (("partition", found.partition), ("entity", found.entity)):
                used.setdefault(subject, set()).add(found.resource.name)
        assert all(len(resources) == 1 for resources in used.values())  # I40


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=examples(250), stateful_step_count=40)


def catalogue(policy: Policy, partitions: int = 4, **options: str) -> Catalogue:
    found = Catalogue(policy)
    found.add_resource(Resource("db1", capacity=1.0))
    found.add_resource(Resource("db2", capacity=3.0))
    for number in range(partitions):
        found.add_partition(
            f"p{number}", on=f"db{number % 2 + 1}", low=options.get(f"p{number}", "")
        )
    return found


@given(st.lists(st.text(min_size=1, max_size=5), max_size=40))
def test_a_choice_is_kept_when_partitions_are_added(entities: list[str]) -> None:
    found = catalogue("hash")
    before = {entity: found.resolve(entity) for entity in entities}
    found.add_partition("p9", on="db1")
    assert {entity: found.resolve(entity) for entity in entities} == before
    fresh = catalogue("hash")
    fresh.add_partition("p9", on="db1")
    for entity in entities:  # what a new partition takes, it takes for itself
        assert fresh.resolve(entity).partition in (before[entity].partition, "p9")


def test_the_least_loaded_resource_gets_the_next() -> None:
    found = catalogue("least_loaded")
    for number in range(40):
        found.resolve(str(number))
    assert (found.resource_load("db1"), found.resource_load("db2")) == (10, 30)


def test_ranges_and_functions_and_pins() -> None:
    found = Catalogue("range")
    found.add_resource(Resource("db1"))
    found.add_partition("low", on="db1", low="a")
    found.add_partition("high", on="db1", low="m")
    assert found.resolve("bob").partition == "low"
    assert found.resolve("zoe").partition == "high"
    with pytest.raises(UnassignedEntity):
        found.resolve("Ana")
    assert found.split("high", "highest", at="t") == ["zoe"]
    assert found.resolve("tom").partition == "highest"
    before = found.resolve("zoe").generation
    assert found.merge("highest", "high") == ["tom", "zoe"]
    after = found.resolve("zoe")
    assert (after.partition, after.generation > before) == ("high", True)
    named = Catalogue(lambda entity: entity[0])
    named.add_resource(Resource("db1"))
    named.add_partition("a", on="db1")
    assert named.resolve("ana").partition == "a"
    with pytest.raises(UnassignedEntity, match="no partition; there are a"):
        named.resolve("bob")
    explicit = catalogue("explicit")
    with pytest.raises(UnassignedEntity):
        explicit.resolve("ana")
    explicit.pin("ana", "p1")
    assert explicit.resolve("ana").partition == "p1"


def test_what_is_in_use_or_unknown_is_refused() -> None:
    found = catalogue("hash")
    with pytest.raises(InUse):
        found.remove_resource("db1")
    with pytest.raises(NotFound, match="db1, db2"):
        found.point("p1", "db3")
    with pytest.raises(Conflict):
        found.merge("p0", "p1")
    with pytest.raises(Conflict):
        found.add_partition("p0", on="db2")
    with pytest.raises(InvalidValue):
        Catalogue("nearest")  # type: ignore[arg-type]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=10),
    st.booleans(),
)
def test_a_plan_brings_loads_closer_and_empties_what_drains(
    capacities: list[int], partitions: list[tuple[int, int]], drains: bool
) -> None:
    found = Catalogue("explicit")
    for number, capacity in enumerate(capacities):
        found.add_resource(Resource(f"r{number}", capacity=float(capacity)))
    for number, (at, load) in enumerate(partitions):
        found.add_partition(f"p{number}", on=f"r{at % len(capacities)}")
        for entity in range(load):
            found.pin(f"{number}/{entity}", f"p{number}")
    if drains:
        found.drain_resource("r0")

    def fullest() -> float:
        return max(
            found.resource_load(name) / one.capacity for name, one in found.resources.items()
        )

    before = fullest()
    plan = plan_rebalance(found)
    assert plan == plan_rebalance(found)  # nothing was changed
    for move in plan:
        assert found.partition(move.partition).resource == move.source
        found.point(move.partition, move.target)
    if drains and len(capacities) > 1:
        assert not any(one.resource == "r0" for one in found.partitions.values())
    elif not drains:
        assert fullest() <= before + 1e-9
