"""One operation on its way through the stages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct, field

from relevo.jobs.submission import new_id
from relevo.pipeline.contexts import Envelope
from relevo.pipeline.model import Cause, Operation, Parent, Stage, Step, Target

if TYPE_CHECKING:
    from relevo.kernel.postgres import Transaction
    from relevo.pipeline.tables import Table
    from relevo.store import ContainerInfo
    from relevo.store.items import ItemKey

_SWITCH = {0: "sync", 1: "async"}


class Frame(Struct, kw_only=True):
    """What the stages of an operation share; lives as long as the operation."""

    asked: Operation
    cause: Cause
    steps: list[Step]
    table: Any = None
    """The `Table`, if the message is about one."""
    info: Any = None
    """What its container is."""
    id: UUID = field(default_factory=new_id)
    depth: int = 1
    correlation: UUID = field(default_factory=new_id)
    at: datetime | None = None
    """When it began, by the storage's clock; None if nobody needs to know."""
    disabled: frozenset[UUID] = frozenset()
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    tx: Any = None
    """The transaction, once there is one."""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    touched: bool = False
    """Whether a step ran in the transaction, which may have changed the record."""
    writes: bool = True
    """Whether anything may have been written in the transaction."""

    @property
    def target(self) -> Target:
        """The record it is about."""
        found: Target = self.input["target"]
        return found

    @property
    def home(self) -> tuple[Table, ContainerInfo]:
        """The table and what its container is."""
        return self.table, self.info

    @property
    def key(self) -> ItemKey:
        """Where the record lies that the request names."""
        table, info = self.home
        return table.key_of(self.asked.id, self.asked.partition_key, info)

    @property
    def running(self) -> Transaction:
        """The transaction; there is one from stage 20 on."""
        assert self.tx is not None
        tx: Transaction = self.tx
        return tx

    @property
    def record_id(self) -> str | None:
        """The key of the record, of a new one too."""
        target = self.input.get("target")
        return target.get("id") if isinstance(target, Target) else self.asked.id

    def runs(self, step: Step) -> bool:
        """Whether a step runs in this operation, as its input is now."""
        if step.id in self.disabled or _SWITCH[step.mode] in self.asked.bypass:
            return False
        target = self.input.get("target")
        return step.wants(frozenset(target or ()))

    def user_of(self, step: Step | None) -> UUID | None:
        """In whose name a step acts."""
        return step.run_as if step is not None and step.run_as is not None else self.cause.user

    def facts(self, step: Step | None, stage: Stage) -> Envelope:
        """Return what a step is told; inputs, outputs and variables are the live ones."""
        return Envelope(
            operation=self.id, message=self.asked.message, table=self.asked.table,
            id=self.record_id, partition_key=self.asked.partition_key, input=self.input,
            output=self.output, pre=step.images_of("pre", self.before) if step else None,
            post=step.images_of("post", self.after) if step else None,
            shared_variables=self.shared, user=self.user_of(step),
            initiating_user=self.cause.initiating_user or self.cause.user,
            correlation=self.correlation, depth=self.depth, parent=self.cause.parent,
            stage=stage, step=step.id if step else self.id,
        )  # fmt: skip

    def cause_of(self, step: Step | None, stage: Stage) -> Cause:
        """Return the cause of what a step does."""
        other = step is not None and step.run_as is not None
        return Cause(
            user=self.user_of(step), initiating_user=self.cause.initiating_user or self.cause.user,
            rights=None if other else self.cause.rights, depth=self.depth,
            correlation=self.correlation, since=self.at, job=self.cause.job,
            parent=Parent(
                depth=self.depth, message=self.asked.message, table=self.asked.table,
                id=self.record_id, stage=stage, step=step.name if step else None,
                parent=self.cause.parent,
            ),
        )  # fmt: skip
