"""`app.job`: the system jobs' method of `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.jobs.core.retry import RetryPolicy, time_limit_of
from relevo.jobs.core.uniqueness import unique_of
from relevo.jobs.registry import registering
from relevo.jobs.schedules.declaration import declared
from relevo.kernel import callables

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from relevo.jobs.core.uniqueness import Uniqueness
    from relevo.jobs.model import Missed, Overlap, Recurrence
    from relevo.jobs.registry import Registering
    from relevo.jobs.service import Jobs
    from relevo.kernel.backoff import Backoff


class JobMethods:
    """Makes functions handlers of jobs."""

    jobs: Jobs

    def job(
        self, name: str, *, lane: str | None = None, pool: str | None = None,
        token: Callable[..., Awaitable[str | None] | str | None] | None = None,
        process: bool = False, timeout: float | timedelta | None = None, retries: int | None = None,
        backoff: Backoff | float | None = None,
        retry_on: type[BaseException] | Sequence[type[BaseException]] | None = None,
        priority: int | None = None, unique: Uniqueness | None = None,
        every: timedelta | float | None = None, cron: str | None = None,
        recurrence: str | Recurrence | None = None, timezone: str | None = None,
        missed: Missed | None = None, overlap: Overlap | None = None, auto_delete: bool = False,
        crashes_max: int | None = None,
    ) -> Registering:  # fmt: skip
        """Make a function the handler of jobs of a name, with the data's fields as its parameters.

        A first parameter named `ctx`, or annotated with `JobContext`, gets the context of the run.
        Coroutines run in the event loop, plain functions in threads, and with `process=True` in a
        process of their own. `lane` is `default` unless there is a `pool`: its handlers share the
        lane `pool:NAME`, which claims no more jobs than the pool has permits for. `token` is a
        Python function that returns the token from the arguments that it names; it applies to
        submits in this app that give no token, and so does `unique`, see `relevo.Unique`: a second
        submit of the same arguments, or of the same key, gets the first job. `auto_delete` removes
        the record of a success.

        An exception leads to up to `retries` further attempts: 3 by default, 9 after an error of
        the network or a database, 1 after the time limit. They wait `backoff`: by default 30 s,
        1 min, 2 min and so on up to 1 h, ± 20 %; a number is the first wait in seconds. With
        `retry_on`, other ordinary exceptions fail the job at once; `retries=0` tries nothing again.
        `timeout` limits one run, in seconds; None uses the limit of the lane. `priority` is that of
        submits that name none, in a lane with `priority=True`. `crashes_max` is the number of hosts
        that a job may lose before it fails; None uses the setting `jobs_crashes_max`.

        `every` (seconds), `cron` (`"0 3 * * *"`) or `recurrence` (`"FREQ=WEEKLY;BYDAY=MO"`) makes a
        schedule of the handler's name, in `timezone` or UTC; `app.jobs.schedules` operates it.
        `missed` is about runs while no host was there: `coalesce` (one run now, the default),
        `skip` or `all`; `overlap` about a run that lasts too long: `queue`, `skip` or `parallel`.
        """
        callables.check_name(name, "app.job")
        what = f"handler {name!r}"
        schedule = declared(
            what, every=every, cron=cron, recurrence=recurrence, timezone=timezone, missed=missed,
            overlap=overlap,
        )  # fmt: skip
        return registering(
            self.jobs, name, process=process, lane=self.jobs.registry.lane_of(name, lane, pool),
            token=token, auto_delete=auto_delete, time_limit=time_limit_of(what, timeout),
            crashes_max=crashes_max, retry=RetryPolicy.of(what, retries, backoff, retry_on),
            priority=priority, unique=unique_of(what, unique), schedule=schedule,
        )  # fmt: skip
