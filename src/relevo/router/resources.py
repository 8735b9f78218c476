"""What a host remembers of policies and queues: all of them, as of one revision.

They are few and change rarely, so that a change makes every host read them anew. Every command
learns the revision under its locks and never acts on an older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.errors import ReferenceNotFound
from relevo.kernel.postgres import catalog
from relevo.router import model
from relevo.router.wire import credentials, documents
from relevo.router.wire.exception_policies import ExceptionPolicy
from relevo.router.wire.policies import ClassificationPolicy, DistributionPolicy, RouterQueue

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Transaction
    from relevo.router.wire.credentials import Sealer

SQL = catalog.load(__package__)
MANAGED_CHANNELS: Final = ("AcsChatChannel", "AcsVoiceChannel", "AcsSMSChannel")
"""Channels that everybody has, also in the strict mode that refuses unknown ones."""


class Options(Struct, frozen=True, kw_only=True):
    """What an installation may set otherwise than the original."""

    unassign_max: int | None = 3
    """How often a job may be taken back; None means no limit."""
    deregister_on_expiry: bool = True
    """Whether a worker that lets an offer expire is taken for absent."""
    idle_seconds: float | None = 7 * 86_400.0
    """After how long without any sign a worker is deregistered; None for never."""
    job_retention_seconds: float | None = None
    """How long ended jobs are kept; None for ever."""
    strict_channels: bool = False
    """Whether jobs and workers may only use channels that were defined."""


class Resources(Struct, frozen=True):
    """Policies and queues by id."""

    revision: int
    queues: dict[str, RouterQueue]
    distribution_policies: dict[str, DistributionPolicy]
    exception_policies: dict[str, ExceptionPolicy]
    classification_policies: dict[str, ClassificationPolicy]
    options: Options = Options()
    channels: frozenset[str] = frozenset()
    """Those that were defined."""

    def check_channel(self, channel_id: str, pointer: str) -> None:
        """Refuse a channel that nobody has defined, where that is asked for."""
        known = channel_id in self.channels or channel_id in MANAGED_CHANNELS
        if self.options.strict_channels and not known:
            raise ReferenceNotFound(
                f"there is no channel {channel_id!r}; define it first, or switch"
                " router_strict_channels off",
                pointer=pointer,
            )

    def distribution(self, queue_id: str) -> DistributionPolicy | None:
        """Return how jobs of a queue are distributed."""
        queue = self.queues.get(queue_id)
        if queue is None:
            return None
        return self.distribution_policies.get(queue.distribution_policy_id)


NOTHING = Resources(-1, {}, {}, {}, {})


class Remembered:
    """The policies and queues that this host knows."""

    def __init__(self, sealer: Sealer, options: Options | None = None) -> None:
        self._sealer = sealer
        self._options = options or Options()
        self._known = NOTHING

    async def at(self, connection: Database | Transaction, revision: int) -> Resources:
        """Return them as of a revision that has been committed."""
        if self._known.revision != revision:
            self._known = await self._read(connection, revision)
        return self._known

    async def now(self, database: Database) -> Resources:
        """Return them as they are."""
        return await self.at(database, await database.fetchval(SQL.revision))

    async def _read(self, connection: Database | Transaction, revision: int) -> Resources:
        found: dict[str, dict[str, Any]] = {}
        for row in await connection.fetch(SQL.all_resources):
            document = msgspec.json.decode(row["body"])
            if documents.secrets_in(document):
                owner = f"{row['kind']}/{row['id']}"
                document = credentials.opened(document, await self._sealer.key(), owner)
            found.setdefault(row["kind"], {})[row["id"]] = model.stored(row["kind"], document)
        return Resources(
            revision,
            found.get("queues", {}),
            found.get("distributionPolicies", {}),
            found.get("exceptionPolicies", {}),
            found.get("classificationPolicies", {}),
            self._options,
            frozenset(row["id"] for row in await connection.fetch(SQL.channels)),
        )
