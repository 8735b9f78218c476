"""Copies the configuration of a job router, and on request workers and jobs, from another service.

The other service is whatever speaks the wire: the original, or another Relevo. It is read through
the official client, which is an optional extra. What is there already is made like the source; a
second run changes nothing. What could not be taken is in the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct

from relevo.errors import CallerError, ConditionNotMet, Forbidden, RelevoError, Unauthenticated
from relevo.router import model
from relevo.router.wire import credentials, documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from relevo.router.wire.documents import Document

Collection = Literal[
    "distributionPolicies", "queues", "classificationPolicies", "exceptionPolicies",
    "workers", "jobs",
]  # fmt: skip
CONFIGURATION: Final[tuple[Collection, ...]] = (
    "distributionPolicies",
    "queues",
    "classificationPolicies",
    "exceptionPolicies",
)
"""In the order of what refers to what; a queue gets its exception policy at the end."""
Outcome = Literal["created", "updated", "unchanged", "left out", "failed"]
UNFINISHED: Final = frozenset({"assigned", "completed"})
"""Of unfinished jobs, those that a worker of the source has: they end there."""
_HOLDERS: Final = frozenset({"credential", "clientCredential"})
_SECRET_OF: Final = {
    "function": ("functionUri", "credential.functionKey, or appKey with clientId"),
    "webhook": ("webhookUri", "clientCredential.clientSecret"),
}
_EXCEPTION: Final = "exceptionPolicyId"


class Taken(Struct, frozen=True):
    """The result for one resource of the source."""

    kind: str
    id: str
    outcome: Outcome
    reason: str | None = None


class Secret(Struct, frozen=True):
    """A secret, which no service shows: set it again if the rule needs one."""

    kind: str
    id: str
    place: str
    """Where the rule stands, as a JSON pointer into the policy."""
    calls: str | None
    """The address that it calls, without its query."""
    set: str
    """The property to set."""


class Report(Struct, frozen=True):
    """The changes of an import; with `dry_run`, those it would make."""

    dry_run: bool
    counts: dict[str, dict[str, int]]
    """How many of each kind had which outcome."""
    not_taken: list[Taken]
    secrets: list[Secret]

    @property
    def complete(self) -> bool:
        """Whether nothing has failed; skipped resources do not count."""
        return not any(one.outcome == "failed" for one in self.not_taken)


class ImportSource(Protocol):
    """A service to copy from."""

    def each(self, collection: Collection) -> AsyncIterator[Document]:
        """Yield its resources, as the wire shows them; of jobs, the unfinished ones."""


class ImportTarget(Protocol):
    """A service to copy to."""

    async def get(self, collection: Collection, resource_id: str) -> Document | None:
        """Return the resource of this id, as the wire shows it."""

    async def put(
        self, collection: Collection, resource_id: str, change: Document, *, new: bool
    ) -> None:
        """Merge a change; with `new` only if there is nothing (`ConditionNotMet`)."""


async def copy(
    source: ImportSource,
    target: ImportTarget,
    *,
    workers: bool = False,
    jobs: bool = False,
    dry_run: bool = False,
    notify: Callable[[Taken], None] = lambda _: None,
) -> Report:
    """Copy policies and queues, and if asked for workers and unfinished jobs.

    Workers come deregistered, to register with their new service themselves. Jobs come in the order
    in which they wait; an existing one is left as it is. `notify` is called for each resource.
    """
    run = _Copy(source, target, dry_run=dry_run, notify=notify)
    await run.configuration()
    if workers:
        await run.workers()
    if jobs:
        await run.jobs()
    return run.report()


class _Copy:
    def __init__(
        self,
        source: ImportSource,
        target: ImportTarget,
        *,
        dry_run: bool,
        notify: Callable[[Taken], None],
    ) -> None:
        self._source = source
        self._target = target
        self._dry_run = dry_run
        self._notify = notify
        self._taken: list[Taken] = []
        self._secrets: list[Secret] = []

    async def configuration(self) -> None:
        found = {kind: [one async for one in self._source.each(kind)] for kind in CONFIGURATION}
        waiting: list[tuple[Document, Taken]] = []
        for kind in CONFIGURATION:
            for document in found[kind]:
                self._secrets += secrets(kind, document)
                later = kind == "queues" and document.get(_EXCEPTION) is not None
                taken = await self._make_like(kind, document, {_EXCEPTION} if later else set())
                if later and taken.outcome != "failed":
                    waiting.append((document, taken))
                else:
                    self._note(taken)
        for document, before in waiting:
            self._note(_both(before, await self._make_like("queues", document, set())))

    async def workers(self) -> None:
        async for document in self._source.each("workers"):
            hidden = {"maxConcurrentOffers"} - document.keys()  # older versions do not show it
            self._note(await self._make_like("workers", document, {"availableForOffers", *hidden}))

    async def jobs(self) -> None:
        found = [one async for one in self._source.each("jobs")]
        for document in sorted(found, key=lambda one: str(one.get("enqueuedAt") or "~")):
            self._note(await self._job(document))

    def report(self) -> Report:
        counts: dict[str, Counter[str]] = {}
        for one in self._taken:
            counts.setdefault(one.kind, Counter())[one.outcome] += 1
        return Report(
            dry_run=self._dry_run,
            counts={kind: dict(each) for kind, each in counts.items()},
            not_taken=[one for one in self._taken if one.outcome in ("failed", "left out")],
            secrets=self._secrets,
        )

    async def _make_like(self, kind: Collection, document: Document, without: set[str]) -> Taken:
        """Make a resource of the target equal to the source's, except some properties."""
        name = str(document["id"])
        try:
            wanted = _without(canonical(kind, document), without)
            found = await self._target.get(kind, name)
            old = None if found is None else _without(canonical(kind, found), without)
            change = difference(old, wanted)
            if old is not None and not change:
                return Taken(kind, name, "unchanged")
            if not self._dry_run:
                await self._target.put(kind, name, change, new=False)
        except (Unauthenticated, Forbidden):
            raise  # and so will all others
        except CallerError as error:
            return Taken(kind, name, "failed", _reason(error))
        return Taken(kind, name, "created" if old is None else "updated")

    async def _job(self, document: Document) -> Taken:
        name, status = str(document["id"]), document.get("status")
        if status in UNFINISHED:
            return Taken(
                "jobs", name, "left out", f"it is {status}: its worker finishes it at the source"
            )
        try:
            wanted = canonical("jobs", _still_asked(document))
            if await self._target.get("jobs", name) is not None:
                return Taken("jobs", name, "unchanged")
            if not self._dry_run:
                await self._target.put("jobs", name, wanted, new=True)
        except ConditionNotMet:
            return Taken("jobs", name, "unchanged")
        except (Unauthenticated, Forbidden):
            raise
        except CallerError as error:
            return Taken("jobs", name, "failed", _reason(error))
        return Taken("jobs", name, "created")

    def _note(self, taken: Taken) -> None:
        self._taken.append(taken)
        self._notify(taken)


def _both(before: Taken, after: Taken) -> Taken:
    """Return the result for a resource that was written in two steps."""
    if after.outcome == "failed" or before.outcome == "unchanged":
        return after
    return before


def canonical(kind: Collection, document: Mapping[str, Any]) -> Document:
    """Return the visible fields of a document that callers write, with defaults."""
    checked = model.checked(kind, documents.merged(kind, None, document))
    shown: Document = documents.shown(model.document_of(checked))
    return shown


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Document:
    """Return the merge patch that makes an old document like a new one.

    Credentials that the new one does not show are left as they are.

    >>> difference({"name": "a", "labels": {"x": 1}}, {"labels": {"x": 2}})
    {'labels': {'x': 2}, 'name': None}
    """
    if old is None:
        return dict(new)
    change: Document = {}
    for name, each in new.items():
        before = old.get(name)
        if isinstance(each, dict) and isinstance(before, dict) and _alike(before, each):
            if inside := difference(before, each):
                change[name] = inside
        elif name not in old or _bare(before) != _bare(each):
            change[name] = each
    change |= {name: None for name in old if name not in new and name not in _HOLDERS}
    return change


def secrets(kind: Collection, document: Mapping[str, Any]) -> Iterator[Secret]:
    """Yield the places of a document where a rule may need a secret that is never given out."""
    for place, rule in _rules(document, ""):
        address, what = _SECRET_OF[rule["kind"]]
        url = rule.get(address)
        called = credentials.redacted(url) if isinstance(url, str) else None
        yield Secret(kind, str(document["id"]), place, called, what)


def _rules(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        if value.get("kind") in _SECRET_OF:
            yield place, value
        for name, each in value.items():
            yield from _rules(each, f"{place}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _rules(each, f"{place}/{number}")


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return bool(old.get("kind") == new.get("kind"))


def _bare(value: Any) -> Any:
    """Return a value without credentials, so that it can be compared."""
    if isinstance(value, Mapping):
        return {name: _bare(each) for name, each in value.items() if name not in _HOLDERS}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _without(document: Document, names: set[str]) -> Document:
    return {name: each for name, each in document.items() if name not in names}


def _still_asked(document: Document) -> Document:
    """Return a job without the selectors that have expired, whose clocks would start anew."""
    asked = document.get("requestedWorkerSelectors") or []
    kept = [one for one in asked if one.get("status") != "expired"]
    return {**document, "requestedWorkerSelectors": kept}


def _reason(error: RelevoError) -> str:
    at = f" ({error.pointer})" if error.pointer else ""
    return f"{error.message}{at}"
