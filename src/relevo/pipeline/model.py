"""The types of the pipeline: stages, modes, images, steps, operations, causes. Pure."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, Literal, get_args
from uuid import UUID, uuid5

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.jobs.core.retry import NOT_ORDINARY, RetryPolicy


class StepStage(IntEnum):
    """The stage of an operation in which a step runs."""

    PRE_VALIDATION = 10
    PRE_OPERATION = 20
    MAIN = 30
    POST = 40


class StepMode(IntEnum):
    """Whether a step runs inside the operation, or after it as a job."""

    SYNC = 0
    ASYNC = 1


PRE_VALIDATION: Final = StepStage.PRE_VALIDATION
PRE_OPERATION: Final = StepStage.PRE_OPERATION
POST: Final = StepStage.POST
SYNC: Final = StepMode.SYNC
ASYNC: Final = StepMode.ASYNC

BYPASS_RIGHT: Final = "pipeline.bypass"
"""The right to skip steps."""
Bypass = Literal["sync", "async"]
DATA_MESSAGES: Final = (
    "Create", "Update", "Delete", "Retrieve", "RetrieveMultiple", "Associate", "Disassociate",
)  # fmt: skip
"""The messages on records; all others are custom."""
IMAGED: Final = ("Create", "Update", "Delete")
_SPACE: Final = UUID("7f1c3f5e-5d0a-5c57-8a52-3a4d8c1f9e60")
"""Namespace of the ids of steps."""


def step_id(name: str) -> UUID:
    """Return the id of a step."""
    return uuid5(_SPACE, name)


def message_handler(message: str) -> str:
    """Return the name of the job handler of a custom message."""
    return f"message:{message}"


class Image:
    """A copy of the record: the given columns, or all."""

    when = ""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.columns))})"

    def of(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the image of a record; missing columns are None."""
        shown = {name: record.get(name) for name in self.columns} if self.columns else record
        return copy.deepcopy(shown)


class Pre(Image):
    """The record before the operation; not for Create."""

    when = "pre"


class Post(Image):
    """The record after the operation, at stage POST; not for Delete."""

    when = "post"


class Step(Struct, frozen=True, kw_only=True):
    """A function that runs when a message is executed on a table; created by `app.step`."""

    name: str
    message: str
    table: str | None
    """Logical name; None for every table."""
    function: Callable[..., Any]
    stage: StepStage
    mode: StepMode = StepMode.SYNC
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
    retry: RetryPolicy = NOT_ORDINARY
    crashes_max: int | None = None

    @property
    def id(self) -> UUID:
        """The id, derived from the name and so equal on all hosts."""
        return step_id(self.name)

    @property
    def handler(self) -> str:
        """The name of the handler of its jobs."""
        return f"step:{self.name}"

    def wants(self, present: frozenset[str]) -> bool:
        """Whether the step runs for a request with these columns, changed or not."""
        return (
            not self.filtering or self.message != "Update" or not present.isdisjoint(self.filtering)
        )

    def images_of(self, when: str, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return its images of one kind, merged; None if it has none."""
        wanted = [image for image in self.images if image.when == when]
        if not wanted or record is None:
            return None
        return {name: value for one in wanted for name, value in one.of(record).items()}


def checked(step: Step) -> Step:
    """Return the step; raises `InvalidValue` for the first rule that it breaks."""
    wrong = [why for broken, why in _RULES if broken(step)]
    if wrong:
        raise InvalidValue(f"step {step.name!r}: {wrong[0]}")
    return step


def _has(when: str) -> Callable[[Step], bool]:
    return lambda step: any(image.when == when for image in step.images)


_RULES: Final[tuple[tuple[Callable[[Step], bool], str], ...]] = (
    (lambda s: not 1 <= len(s.name) <= 200, "a name has 1 to 200 characters"),
    (lambda s: not 1 <= len(s.message) <= 160, "a message has 1 to 160 characters"),
    (lambda s: s.stage == StepStage.MAIN, "stage 30 is the operation itself; see app.message"),
    (
        lambda s: s.mode == StepMode.ASYNC and s.stage != StepStage.POST,
        "only a step of stage POST can be asynchronous",
    ),
    (
        lambda s: bool(s.filtering) and s.message != "Update",
        "filtering is only for Update",
    ),
    (
        lambda s: bool(s.images) and s.message not in IMAGED,
        f"images are only for {', '.join(IMAGED)}",
    ),
    (lambda s: s.message == "Create" and _has("pre")(s), "Create has no pre image"),
    (lambda s: s.message == "Delete" and _has("post")(s), "Delete has no post image"),
    (lambda s: s.stage != StepStage.POST and _has("post")(s), "only stage POST has a post image"),
    (
        lambda s: s.serialize not in (None, "record"),
        "serialize must be 'record' or None",
    ),
    (
        lambda s: s.mode == StepMode.SYNC and (s.serialize is not None or s.auto_delete),
        "serialize and auto_delete are only for asynchronous steps",
    ),
)  # fmt: skip


class Target(dict[str, Any]):
    """The record of an operation: its id, and the columns of the request."""

    @property
    def id(self) -> str:
        """The record's id."""
        id_: str = self["id"]
        return id_


class ParentOperation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The step or job that caused an operation, and what caused that."""

    depth: int
    message: str | None = None
    table: str | None = None
    id: str | None = None
    stage: int | None = None
    step: str | None = None
    job: UUID | None = None
    parent: ParentOperation | None = None


class OperationCause(Struct, frozen=True, kw_only=True):
    """The user of an operation, and its place in the chain of causes."""

    user: UUID | None = None
    initiating_user: UUID | None = None
    rights: frozenset[str] | None = None
    """The caller's rights beyond data operations; None means `Pipeline.rights_of` the user."""
    depth: int = 0
    correlation: UUID | None = None
    since: datetime | None = None
    """When that depth was reached."""
    parent: ParentOperation | None = None
    job: Any = None
    """The run (`JobContext`) of the job that makes the operation, if any."""


class OperationRequest(Struct, frozen=True, kw_only=True):
    """A message to execute."""

    message: str
    table: str | None = None
    id: str | None = None
    partition_key: Any = None
    input: dict[str, Any]
    if_match: str | None = None
    bypass: frozenset[str] = frozenset()


def bypass_of(given: Any) -> frozenset[str]:
    """Return which steps to skip; raises `InvalidValue`."""
    kinds = frozenset({given} if isinstance(given, str) else given)
    if unknown := kinds - set(get_args(Bypass)):
        raise InvalidValue(f"bypass takes sync and async, not {', '.join(sorted(unknown))}")
    return kinds
