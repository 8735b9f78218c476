"""`app.job`: the system jobs' method of `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.errors import InvalidValue
from relevo.jobs.core.outcomes import Attempts
from relevo.jobs.registry import JobDefinition, Registering, described

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.jobs.service import Jobs


class JobMethods:
    """Makes functions handlers of jobs."""

    jobs: Jobs

    def job(
        self,
        name: str,
        *,
        lane: str | None = None,
        pool: str | None = None,
        token: Callable[..., Awaitable[str | None] | str | None] | None = None,
        process: bool = False,
        time_limit: float | None = None,
        auto_delete: bool = False,
        crashes_max: int | None = None,
        attempts: Attempts = Attempts(),  # noqa: B008 - frozen
    ) -> Registering:
        """Make a function the handler of jobs of a name, with the data's fields as its parameters.

        A first parameter named `ctx`, or annotated with `JobContext`, gets the context of the run.
        Coroutines run in the event loop, plain functions in threads, and with `process=True` in a
        process of their own. `lane` is `default` unless there is a `pool`: its handlers share the
        lane `pool:NAME`, which claims no more jobs than the pool has permits for. `token` is a
        Python function that returns the token from the arguments that it names; it applies to
        submits in this app that give no token. `auto_delete` removes the record of a success.
        `crashes_max` is the number of hosts that a job may lose before it fails; None uses the
        setting `jobs_crashes_max`. `attempts` limits the attempts after `RetryLater`,
        infrastructure errors and time limits.
        """

        if lane is not None and pool is not None:
            raise InvalidValue(
                f"job {name!r} names the lane {lane!r} and the pool {pool!r}; name the pool in the"
                " lane: Lane(name=..., pool=...)"
            )
        if lane is None:
            lane = "default" if pool is None else self.jobs.registry.pool_lane(pool)

        def register(function: Any) -> Any:
            handler = described(
                name, function, process=process, lane=lane, token=token, time_limit=time_limit,
                auto_delete=auto_delete, crashes_max=crashes_max, attempts=attempts,
            )  # fmt: skip
            self.jobs.registry.add(handler)
            return JobDefinition(self.jobs, handler, function)

        return register
