"""A host's cache of resolutions, and its uses of resources.

    cache = Resolutions(MoveRules())
    cache.put(resolution, asked_at=now)
    use = cache.begin("alice", now)  # Use(...), or Missing() or Paused()
    cache.end(use.number)

A resolution is fresh for `max_stale` seconds after it was asked for; past that it is not used. An
entry never serves another entity than the one it was asked for. Of two generations the higher one
wins, in whatever order they arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.governance.core.assignments import Resolution

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relevo.governance.core.moves import MoveRules

ENTRIES_MAX: Final = 100_000


class Use(Struct, frozen=True):
    """A resource in use, until it is ended; canceled at its deadline."""

    number: int
    resolution: Resolution
    deadline: float


class Missing(Struct, frozen=True):
    """Nothing fresh is known: ask the resolver."""


class Paused(Struct, frozen=True):
    """The partition is being moved: wait until it is stable again."""

    subject: str
    generation: int


class Notice(Struct, frozen=True):
    """What a resolver tells of a partition."""

    subject: str
    generation: int
    moving: bool
    origins: tuple[tuple[str, int], ...] = ()
    """Partitions of which uses from before those generations count as uses of this one."""


class _Entry(Struct):
    resolution: Resolution
    asked_at: float


class Resolutions:
    """What a host knows; times are of its monotonic clock."""

    def __init__(self, rules: MoveRules, *, entries_max: int = ENTRIES_MAX) -> None:
        self._rules = rules
        self._entries_max = entries_max
        self._entries: dict[str, _Entry] = {}
        self._notices: dict[str, Notice] = {}
        """The youngest of each partition."""
        self._moving: set[str] = set()
        """Partitions that are being moved."""
        self._resources: dict[str, int] = {}
        """Generations of resources that have changed."""
        self._uses: dict[int, Use] = {}
        self._number = 0

    def put(self, resolution: Resolution, asked_at: float) -> bool:
        """Take in an answer of the resolver, asked for at that time; False if it is outdated."""
        entity = resolution.entity
        known = self._entries.get(entity)
        if self._is_outdated(resolution) or (
            known is not None and known.resolution.generation > resolution.generation
        ):
            return False
        if known is not None and known.resolution.generation == resolution.generation:
            asked_at = max(asked_at, known.asked_at)
        self._entries.pop(entity, None)
        self._entries[entity] = _Entry(resolution, asked_at)
        while len(self._entries) > self._entries_max:
            del self._entries[next(iter(self._entries))]
        return True

    def get(self, entity: str, now: float, *, stale_ok: bool = False) -> Resolution | None:
        """Return what is known of an entity; None if that is not fresh."""
        entry = self._entries.get(entity)
        if entry is None:
            return None
        if stale_ok:
            return entry.resolution
        if now - entry.asked_at >= self._rules.max_stale or self._is_outdated(entry.resolution):
            return None
        return entry.resolution

    def knows(self, entity: str) -> bool:
        """Whether there is any answer for an entity, fresh or not."""
        return entity in self._entries

    def begin(self, entity: str, now: float) -> Use | Missing | Paused:
        """Begin to use the resource of an entity."""
        entry = self._entries.get(entity)
        if entry is not None:
            notice = self._notices.get(entry.resolution.partition)
            if notice is not None and notice.moving:
                return Paused(notice.subject, notice.generation)
        resolution = self.get(entity, now)
        if resolution is None:
            return Missing()
        self._number += 1
        use = Use(self._number, resolution, now + self._rules.use_ttl)
        self._uses[use.number] = use
        return use

    def end(self, number: int) -> bool:
        """End a use; whether it was still known."""
        return self._uses.pop(number, None) is not None

    def overdue(self, now: float) -> list[Use]:
        """Return uses that are to be canceled: they have lasted as long as they may."""
        return [use for use in self._uses.values() if use.deadline <= now]

    def learn(
        self, notices: Iterable[Notice], asked_at: float, *, complete: bool = False,
        resources: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Take in what has changed, and of `resources` their generations.

        `complete` if nothing else has since the last time. Then all that is not outdated is as
        fresh as if it had been asked for now.
        """
        for notice in notices:
            known = self._notices.get(notice.subject)
            if known is None or notice.generation >= known.generation:
                self._notices[notice.subject] = notice
                (self._moving.add if notice.moving else self._moving.discard)(notice.subject)
        for name, generation in (resources or {}).items():
            self._resources[name] = max(generation, self._resources.get(name, 0))
        if complete:
            for entry in self._entries.values():
                if not self._is_outdated(entry.resolution):
                    entry.asked_at = max(entry.asked_at, asked_at)

    def is_quiet(self, subject: str, generation: int) -> bool:
        """Whether no use of a partition is left from before a generation, nor can begin."""
        notice = self._notices.get(subject)
        if notice is None or notice.generation < generation:
            return False
        before = {subject: generation}
        for origin, of_old in notice.origins:
            before[origin] = max(of_old, before.get(origin, 0))
        return not any(
            use.resolution.generation < before.get(use.resolution.partition, 0)
            for use in self._uses.values()
        )

    def quiet_moves(self) -> list[Notice]:
        """Return the moves of which this host has no older use left: it reports them."""
        moving = [self._notices[subject] for subject in sorted(self._moving)]
        return [one for one in moving if self.is_quiet(one.subject, one.generation)]

    def forget(self, entity: str) -> None:
        """Forget what is known of an entity: a gate refused it as outdated."""
        self._entries.pop(entity, None)

    def _is_outdated(self, resolution: Resolution) -> bool:
        notice, resource = self._notices.get(resolution.partition), resolution.resource
        if notice is not None and resolution.generation < notice.generation:
            return True
        return resource.generation < self._resources.get(resource.name, 0)
