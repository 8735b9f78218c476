"""`relevo.sync.App`: the client for code without `await`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from relevo.app import App as AsyncApp
from relevo.errors import Conflict
from relevo.jobs import JobDefinition
from relevo.sync.batches import Batch
from relevo.sync.containers import Container
from relevo.sync.facade import Blocking, Facade
from relevo.sync.jobs import Job
from relevo.sync.loop_thread import LoopThread
from relevo.sync.messages import Queue, Topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from uuid import UUID

    from relevo.jobs.batches.model import Condition
    from relevo.jobs.model import SubmitOptions
    from relevo.messaging.model import QueueOptions, TopicOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class App(Facade):
    """A client of Relevo whose methods block; threads share it, and forked children may use it.

    It takes an async `relevo.App`, such as the one whose jobs `relevo run` serves, or what that
    takes: a URL, settings, nothing. It connects at the first call. Handlers belong to the async
    App, as plain functions if you like.

    >>> client = relevo.sync.App()  # doctest: +SKIP
    >>> client.submit("receipt", {"customer": "ana"}).wait(timeout=60)  # doctest: +SKIP
    """

    _behind: AsyncApp

    def __init__(self, app: AsyncApp | str | None = None, **options: Any) -> None:
        if not isinstance(app, AsyncApp):
            app = AsyncApp(app, **options)
        elif options:
            raise TypeError(f"give {', '.join(options)} to the App, or a URL instead of the App")
        thread = LoopThread(self._connect, app.close, app.forget_connection)
        super().__init__(thread, app)

    async def _connect(self) -> None:
        if self._behind.is_connected:
            raise Conflict(
                "this App is connected in another event loop of the process; give relevo.sync.App"
                " a URL, or an App of its own"
            )
        await self._behind.connect()

    @property
    def app(self) -> AsyncApp:
        """The async App behind it."""
        return self._behind

    @property
    def database_url(self) -> str:
        """URL of the database in use; connects first. See `relevo.App.database_url`."""
        self.connect()
        return self._behind.database_url

    def connect(self) -> None:
        """Connect now rather than at the first call."""
        self._thread.run(_nothing())

    def close(self) -> None:
        """Disconnect, as at the end of the process; a later call connects again."""
        self._thread.close()

    def __enter__(self) -> App:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for any call of the async API: `client.run(client.app.router.worker("a").get())`.

        Its type is kept. The App of the call must be that of this client.
        """
        return self._thread.run(awaitable)

    def iterate(self, values: AsyncIterable[T]) -> Iterator[T]:
        """Return an async iteration of this client's App, such as a query, as a blocking one."""
        iterator = aiter(values)
        while True:
            try:
                yield self._thread.run(_next(iterator))
            except StopAsyncIteration:
                return

    @overload
    def submit(
        self, handler: JobDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[R]: ...

    @overload
    def submit(
        self, handler: str, data: Any = None, /, **options: Unpack[SubmitOptions]
    ) -> Job[Any]: ...

    def submit(self, handler: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Submit a job; it is stored when this returns, or when `tx` commits.

        `submit(receipt, customer="ana")` takes the arguments of the handler, and options by
        `receipt.using(tx=connection, start=…)`; `submit("receipt", {"customer": "ana"}, tx=…)`
        takes a name, data, and the options of `relevo.Jobs.submit`. `tx` is a connection of
        psycopg, SQLAlchemy or Django; its statements run in the calling thread.
        """
        if isinstance(handler, JobDefinition):
            submitting = handler.submit(*args, **kwargs)
            options: Mapping[str, Any] = handler.options
        else:
            submitting = self._behind.jobs.submit(handler, *args, **kwargs)
            options = kwargs
        needs_app = options.get("tx") is None or options.get("recurrence") is not None
        return Job(self._thread, self._thread.run(submitting, connected=needs_app))

    def submit_many(
        self, handler: str, data: Sequence[Any], **options: Unpack[SubmitOptions]
    ) -> list[Job[Any]]:
        """Submit a job for each element of `data`, in order, in one transaction."""
        handles = self._thread.run(self._behind.jobs.submit_many(handler, data, **options))
        return [Job(self._thread, one) for one in handles]

    def job(self, id: UUID | str) -> Job[Any]:  # noqa: A002 - the word of the API
        """Return a job by its key."""
        return Job(self._thread, self._behind.jobs.handle(id))

    def batch(
        self, name: str | None = None, *, then: str | JobDefinition[..., Any] | None = None,
        data: Any = None, condition: Condition = "ended", owner: UUID | None = None, tx: Any = None,
    ) -> Batch:  # fmt: skip
        """Make a batch of jobs; see `relevo.Jobs.batch`."""
        making = self._behind.jobs.batch(
            name, then=then, data=data, condition=condition, owner=owner, tx=tx
        )
        return Batch(self._thread, self._thread.run(making, connected=tx is None))

    def find_batch(self, id: UUID | str) -> Batch:  # noqa: A002 - the word of the API
        """Return a batch by its id."""
        return Batch(self._thread, self._behind.jobs.batches.handle(id))

    def queue(
        self, name: str, *, max_class: str | None = None, **options: Unpack[QueueOptions]
    ) -> Queue:
        """Return a queue, as `relevo.App.queue`; no I/O."""
        return Queue(self._thread, self._behind.queue(name, max_class=max_class, **options))

    def topic(
        self, name: str, *, max_class: str | None = None, **options: Unpack[TopicOptions]
    ) -> Topic:
        """Return a topic, as `relevo.App.topic`; no I/O."""
        return Topic(self._thread, self._behind.topic(name, max_class=max_class, **options))

    @overload
    def container(
        self, name: str, partition_key: str | Sequence[str] | None = None, *, model: type[T],
        ttl: float | timedelta | None = None,
    ) -> Container[T]: ...  # fmt: skip

    @overload
    def container(
        self, name: str, partition_key: str | Sequence[str] | None = None, *, model: None = None,
        ttl: float | timedelta | None = None,
    ) -> Container[dict[str, Any]]: ...  # fmt: skip

    def container(
        self, name: str, partition_key: str | Sequence[str] | None = None, *, model: Any = None,
        ttl: float | timedelta | None = None,
    ) -> Container[Any]:  # fmt: skip
        """Return a container, as `relevo.App.container`; no I/O."""
        return Container(
            self._thread, self._behind.container(name, partition_key, model=model, ttl=ttl)
        )

    now = Blocking(AsyncApp.now)


async def _nothing() -> None:
    pass


async def _next(iterator: Any) -> Any:
    return await anext(iterator)
