"""The state of one operation while its stages run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct, field

from relevo.jobs.submitting.submission import new_id
from relevo.pipeline.contexts import Envelope
from relevo.pipeline.model import (
    OperationCause,
    OperationRequest,
    ParentOperation,
    Step,
    StepStage,
    Target,
)

if TYPE_CHECKING:
    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.tables import Table
    from relevo.store import ContainerInfo
    from relevo.store.items import ItemKey

_SWITCH = {0: "sync", 1: "async"}


class OperationRun(Struct, kw_only=True):
    """What the stages of an operation share."""

    request: OperationRequest
    cause: OperationCause
    steps: list[Step]
    table: Any = None
    """The `Table` of the message, if it has one."""
    info: Any = None
    """The `ContainerInfo` of the table."""
    id: UUID = field(default_factory=new_id)
    depth: int = 1
    correlation: UUID = field(default_factory=new_id)
    at: datetime | None = None
    """When it began, by the database's clock; None if it was not needed."""
    disabled: frozenset[UUID] = frozenset()
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    tx: Any = None
    """The transaction, from stage 20 on."""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    touched: bool = False
    """Whether a step ran in the transaction and may have changed the record."""
    writes: bool = True
    """Whether anything may have been written in the transaction."""

    @property
    def target(self) -> Target:
        """The target record."""
        target: Target = self.input["target"]
        return target

    @property
    def home(self) -> tuple[Table, ContainerInfo]:
        """The table and its container."""
        return self.table, self.info

    @property
    def key(self) -> ItemKey:
        """The key of the requested record."""
        table, info = self.home
        return table.key_of(self.request.id, self.request.partition_key, info)

    @property
    def transaction(self) -> Transaction:
        """The transaction, which exists from stage 20 on."""
        assert self.tx is not None
        tx: Transaction = self.tx
        return tx

    @property
    def record_id(self) -> str | None:
        """The id of the record, also of a new one."""
        target = self.input.get("target")
        return target.get("id") if isinstance(target, Target) else self.request.id

    def runs(self, step: Step) -> bool:
        """Whether a step runs, given the current input."""
        if step.id in self.disabled or _SWITCH[step.mode] in self.request.bypass:
            return False
        target = self.input.get("target")
        return step.wants(frozenset(target or ()))

    def user_of(self, step: Step | None) -> UUID | None:
        """Return the user in whose name a step acts."""
        return step.run_as if step is not None and step.run_as is not None else self.cause.user

    def envelope(self, step: Step | None, stage: StepStage) -> Envelope:
        """Return the context of a step; it shares the input, output and variables of this run."""
        return Envelope(
            operation=self.id, message=self.request.message, table=self.request.table,
            id=self.record_id, partition_key=self.request.partition_key, input=self.input,
            output=self.output, pre=step.images_of("pre", self.before) if step else None,
            post=step.images_of("post", self.after) if step else None,
            shared_variables=self.shared, user=self.user_of(step),
            initiating_user=self.cause.initiating_user or self.cause.user,
            correlation=self.correlation, depth=self.depth, parent=self.cause.parent,
            stage=stage, step=step.id if step else self.id,
        )  # fmt: skip

    def cause_of(self, step: Step | None, stage: StepStage) -> OperationCause:
        """Return the cause of a step's own operations."""
        other = step is not None and step.run_as is not None
        return OperationCause(
            user=self.user_of(step), initiating_user=self.cause.initiating_user or self.cause.user,
            rights=None if other else self.cause.rights, depth=self.depth,
            correlation=self.correlation, since=self.at, job=self.cause.job,
            parent=ParentOperation(
                depth=self.depth, message=self.request.message, table=self.request.table,
                id=self.record_id, stage=stage, step=step.name if step else None,
                parent=self.cause.parent,
            ),
        )  # fmt: skip
