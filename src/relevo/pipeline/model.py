"""The nouns of the pipeline: stages, modes, images, steps, operations, causes. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, Literal, get_args
from uuid import UUID, uuid5

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.jobs.core.outcomes import Attempts


class Stage(IntEnum):
    """Where in an operation a step runs."""

    PRE_VALIDATION = 10
    PRE_OPERATION = 20
    MAIN = 30
    POST = 40


class Mode(IntEnum):
    """Whether a step runs inside the operation, or after it as a job."""

    SYNC = 0
    ASYNC = 1


PRE_VALIDATION: Final = Stage.PRE_VALIDATION
PRE_OPERATION: Final = Stage.PRE_OPERATION
POST: Final = Stage.POST
SYNC: Final = Mode.SYNC
ASYNC: Final = Mode.ASYNC

BYPASS_RIGHT: Final = "pipeline.bypass"
"""What a caller needs to leave out steps."""
Bypass = Literal["sync", "async"]
DATA_MESSAGES: Final = (
    "Create", "Update", "Delete", "Retrieve", "RetrieveMultiple", "Associate", "Disassociate",
)  # fmt: skip
"""What is done with records; all other messages are custom."""
IMAGED: Final = ("Create", "Update", "Delete")
_SPACE: Final = UUID("7f1c3f5e-5d0a-5c57-8a52-3a4d8c1f9e60")
"""Namespace of the keys of steps."""


def step_id(name: str) -> UUID:
    """Return the key of a step."""
    return uuid5(_SPACE, name)


def message_handler(message: str) -> str:
    """Return the name of the handler that carries out a custom message as a job."""
    return f"message:{message}"


class Image:
    """A look at the record: some of its columns, or all if none is named."""

    when = ""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.columns))})"

    def of(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return what the image shows of a record; columns it does not have are None."""
        shown = {name: record.get(name) for name in self.columns} if self.columns else record
        return copy.deepcopy(shown)


class Pre(Image):
    """The record before the operation; there is none for Create."""

    when = "pre"


class Post(Image):
    """The record after the operation, at stage POST; there is none for Delete."""

    when = "post"


class Step(Struct, frozen=True, kw_only=True):
    """Code that runs when a message is carried out on a table; made by `app.step`."""

    name: str
    message: str
    table: str | None
    """Logical name; None for every table."""
    function: Callable[..., Any]
    stage: Stage
    mode: Mode = Mode.SYNC
    rank: int = 1
    filtering: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    configuration: str | None = None
    secure: str | None = None
    run_as: UUID | None = None
    auto_delete: bool = False
    serialize: Literal["record"] | None = None
    enabled: bool = True
    time_limit: float | None = None
    attempts: Attempts = Attempts()
    crashes_max: int | None = None

    @property
    def id(self) -> UUID:
        """Its key: the same on every host, because it follows from the name."""
        return step_id(self.name)

    @property
    def handler(self) -> str:
        """The name of the handler that runs its jobs."""
        return f"step:{self.name}"

    def wants(self, present: frozenset[str]) -> bool:
        """Whether the columns that a request brings are of interest; changed or not."""
        return (
            not self.filtering or self.message != "Update" or not present.isdisjoint(self.filtering)
        )

    def images_of(self, when: str, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return all its images of one kind as one, or None if it has none."""
        wanted = [one for one in self.images if one.when == when]
        if not wanted or record is None:
            return None
        return {name: value for one in wanted for name, value in one.of(record).items()}


def checked(step: Step) -> Step:
    """Return the step, or refuse what cannot be, by name."""
    wrong = [why for broken, why in _RULES if broken(step)]
    if wrong:
        raise InvalidValue(f"step {step.name!r}: {wrong[0]}")
    return step


def _has(when: str) -> Callable[[Step], bool]:
    return lambda step: any(one.when == when for one in step.images)


_RULES: Final[tuple[tuple[Callable[[Step], bool], str], ...]] = (
    (lambda s: not 1 <= len(s.name) <= 200, "a name has 1 to 200 characters"),
    (lambda s: not 1 <= len(s.message) <= 160, "a message has 1 to 160 characters"),
    (lambda s: s.stage == Stage.MAIN, "stage 30 is the operation itself; see app.message"),
    (
        lambda s: s.mode == Mode.ASYNC and s.stage != Stage.POST,
        "only stage POST can be asynchronous: jobs run after the operation",
    ),
    (
        lambda s: bool(s.filtering) and s.message != "Update",
        "filtering is for Update alone; other messages have no changed columns",
    ),
    (
        lambda s: bool(s.images) and s.message not in IMAGED,
        f"images are for {', '.join(IMAGED)}; other messages change no single record",
    ),
    (lambda s: s.message == "Create" and _has("pre")(s), "Create has no record before it to show"),
    (lambda s: s.message == "Delete" and _has("post")(s), "Delete leaves no record to show"),
    (lambda s: s.stage != Stage.POST and _has("post")(s), "only stage POST has a record after it"),
    (
        lambda s: s.serialize not in (None, "record"),
        "serialize is 'record' or None: jobs of one record after the other, or all at once",
    ),
    (
        lambda s: s.mode == Mode.SYNC and (s.serialize is not None or s.auto_delete),
        "serialize and auto_delete are about jobs; a synchronous step has none",
    ),
)  # fmt: skip


class Target(dict[str, Any]):
    """The record that an operation is about: its key, and the columns that the request brings."""

    @property
    def id(self) -> str:
        """The record's key."""
        found: str = self["id"]
        return found


class Parent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What caused an operation: a step or a job, and what caused that."""

    depth: int
    message: str | None = None
    table: str | None = None
    id: str | None = None
    stage: int | None = None
    step: str | None = None
    job: UUID | None = None
    parent: Parent | None = None


class Cause(Struct, frozen=True, kw_only=True):
    """In whose name an operation is made, and how deep in a chain of causes."""

    user: UUID | None = None
    initiating_user: UUID | None = None
    rights: frozenset[str] | None = None
    """What the caller may do beyond data operations; None is what `Pipeline.rights_of` says."""
    depth: int = 0
    correlation: UUID | None = None
    since: datetime | None = None
    """When that depth was reached."""
    parent: Parent | None = None
    job: Any = None
    """The run (`JobContext`) of the job that makes it, if one does."""


class Operation(Struct, frozen=True, kw_only=True):
    """One message to be carried out."""

    message: str
    table: str | None = None
    id: str | None = None
    partition_key: Any = None
    input: dict[str, Any]
    if_match: str | None = None
    bypass: frozenset[str] = frozenset()


def bypass_of(given: Any) -> frozenset[str]:
    """Return which steps a caller wants to leave out."""
    found = frozenset({given} if isinstance(given, str) else given)
    if strange := found - set(get_args(Bypass)):
        raise InvalidValue(f"bypass takes sync and async, not {', '.join(sorted(strange))}")
    return found
