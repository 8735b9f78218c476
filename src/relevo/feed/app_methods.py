"""`app.container`: the store's and the feed's method of `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from relevo import limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from relevo.feed.container import FeedContainer
    from relevo.feed.service import Feeds
    from relevo.store import Container, Store

T = TypeVar("T")


class FeedMethods:
    """Returns containers with their feeds."""

    store: Store
    feeds: Feeds

    @overload
    def container(
        self,
        name: str,
        partition_key: str | Sequence[str] | None = None,
        *,
        model: None = None,
        ttl: float | timedelta | None = None,
        versions: timedelta | None = None,
        previous_images: bool = False,
        ranges: int = limits.RANGES_PER_CONTAINER,
    ) -> FeedContainer[dict[str, Any]]: ...

    @overload
    def container(
        self,
        name: str,
        partition_key: str | Sequence[str] | None = None,
        *,
        model: type[T],
        ttl: float | timedelta | None = None,
        versions: timedelta | None = None,
        previous_images: bool = False,
        ranges: int = limits.RANGES_PER_CONTAINER,
    ) -> FeedContainer[T]: ...

    def container(
        self,
        name: str,
        partition_key: str | Sequence[str] | None = None,
        *,
        model: Any = None,
        ttl: float | timedelta | None = None,
        versions: timedelta | None = None,
        previous_images: bool = False,
        ranges: int = limits.RANGES_PER_CONTAINER,
    ) -> FeedContainer[Any]:
        """Return a container of items with its feed; no I/O, so modules may call it on import.

        `partition_key` is a path such as `/city`, or up to three; without it the container must
        exist. `relevo.store.Store.container` explains the options.
        """
        handle: Container[Any] = self.store.container(
            name, partition_key, model=model, ttl=ttl, versions=versions,
            previous_images=previous_images, ranges=ranges,
        )  # fmt: skip
        return self.feeds.container(handle)
