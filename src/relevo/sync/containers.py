"""Containers of items, for callers that block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from relevo.store import Container as AsyncContainer
from relevo.sync.facade import Blocking, Facade

if TYPE_CHECKING:
    from relevo.feed import FeedContainer
    from relevo.store import Item
    from relevo.sync.loop_thread import LoopThread

T = TypeVar("T")


class Container(Facade, Generic[T]):
    """Items of one kind: `relevo.Container` without `await`."""

    _behind: FeedContainer[T]

    def __init__(self, thread: LoopThread, container: FeedContainer[T]) -> None:
        super().__init__(thread, container)

    def create(self, item: Any) -> Item[T]:
        """Store a new item; `ItemExists` if there is one with its id and partition key."""
        return self._thread.run(self._behind.create(item))

    def upsert(self, item: Any, if_match: str | None = None) -> Item[T]:
        """Store an item, whether it exists or not; with `if_match` it must, in that version."""
        return self._thread.run(self._behind.upsert(item, if_match))

    def replace(self, item: Any, if_match: str | None = None) -> Item[T]:
        """Store a new version of an item; `NotFound`, or `ConditionNotMet` if it has moved on."""
        return self._thread.run(self._behind.replace(item, if_match))

    def read(self, id: str, partition_key: Any) -> Item[T]:  # noqa: A002 - the word of the API
        """Return an item as it is; `NotFound` if there is none or it has expired."""
        return self._thread.run(self._behind.read(id, partition_key))

    delete = Blocking(AsyncContainer.delete)
    patch = Blocking(AsyncContainer.patch)
    batch = Blocking(AsyncContainer.batch)
    bulk = Blocking(AsyncContainer.bulk)
    describe = Blocking(AsyncContainer.describe)
    drop = Blocking(AsyncContainer.drop)
