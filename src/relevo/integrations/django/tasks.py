"""A backend for Django's Tasks (Django 6.0 or newer): each task is a system job.

TASKS = {"default": {"BACKEND": "relevo.integrations.django.tasks.RelevoBackend"}}

Options: `database`, the alias of the connection that stores tasks (`default`); `retries` and
`timeout` (seconds) of a task that raised or takes too long, by default as for other jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.db import close_old_connections, connections
from django.tasks import TaskResult, TaskResultStatus, task_backends
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import TASK_MAX_PRIORITY, TASK_MIN_PRIORITY, TaskContext, TaskError
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from relevo.errors import InvalidValue
from relevo.integrations.django import client
from relevo.jobs import JobContext, JobMissing

if TYPE_CHECKING:
    from relevo.app import App
    from relevo.jobs import Job

LANE: Final = "default"
"""It serves urgent tasks first, from when a process serves tasks."""
STATUS: Final = {
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "canceled": TaskResultStatus.FAILED,
}
"""Of ended jobs; others are running if a host has them, and else ready."""


class RelevoBackend(BaseTaskBackend):
    """Stores tasks on Django's connection, so that a task belongs to the ORM's transaction."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a task: inside `transaction.atomic` it exists if the block commits."""
        self.validate_task(task)
        data = normalize_json(
            {
                "task": task.module_path, "queue_name": task.queue_name, "priority": task.priority,
                "args": list(args), "kwargs": kwargs,
            }
        )  # fmt: skip
        job = client().submit(
            handler_name(self.alias), data, tx=connections[self.options.get("database", "default")],
            name=task.name[:256], start=task.run_after, retain=True,
            priority=_priority(task.priority),
        )  # fmt: skip
        result = _result(
            task, self.alias, str(job.id), TaskResultStatus.READY, args=list(args), kwargs=kwargs
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return a task as it is now; `TaskResultDoesNotExist` if there is none."""
        try:
            job = client().job(result_id).get()
        except (JobMissing, InvalidValue) as error:
            raise TaskResultDoesNotExist(result_id) from error
        if job.handler != handler_name(self.alias):
            raise TaskResultDoesNotExist(result_id)
        return _of_job(job, self.alias)


def handler_name(alias: str) -> str:
    """Return the name of the jobs of a backend."""
    return f"django.task:{alias}"


def register_backends(app: App) -> None:
    """Register the handlers of all Relevo backends of the setting `TASKS`."""
    lane = app.jobs.registry.lanes[LANE]
    app.jobs.configure(msgspec.structs.replace(lane, priority=True))
    for backend in task_backends.all():
        if isinstance(backend, RelevoBackend):
            _register(app, backend)


def _register(app: App, backend: RelevoBackend) -> None:
    options = {name: backend.options.get(name) for name in ("retries", "timeout")}

    @app.job(handler_name(backend.alias), lane=LANE, **options)
    def run(
        ctx: JobContext, task: str, queue_name: str, priority: int, args: list[Any],
        kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        found = import_string(task).using(queue_name=queue_name, priority=priority)
        result = _result(
            found, backend.alias, str(ctx.id), TaskResultStatus.RUNNING, args=args, kwargs=kwargs,
            worker_ids=[app.leases.name] * ctx.attempt,
        )  # fmt: skip
        close_old_connections()
        task_started.send(sender=type(backend), task_result=result)
        status = TaskResultStatus.FAILED
        try:
            first = (TaskContext(task_result=result),) if found.takes_context else ()
            returned = normalize_json(found.call(*first, *args, **kwargs))
            status = TaskResultStatus.SUCCESSFUL
            return returned
        finally:
            object.__setattr__(result, "status", status)
            task_finished.send(type(backend), task_result=result)
            close_old_connections()


def _of_job(job: Job, alias: str) -> Any:
    data = job.data
    task = import_string(data["task"]).using(
        queue_name=data["queue_name"], priority=data["priority"], run_after=job.postpone_until
    )
    status = STATUS.get(job.status) or (
        TaskResultStatus.RUNNING if job.state == "locked" else TaskResultStatus.READY
    )
    result = _result(
        task, alias, str(job.id), status, args=data["args"], kwargs=data["kwargs"],
        enqueued_at=job.created_at, started_at=job.started_at, finished_at=job.completed_at,
        last_attempted_at=job.started_at, errors=_errors(job),
        worker_ids=[job.host_name or ""] * job.attempt,
    )  # fmt: skip
    object.__setattr__(result, "_return_value", job.result)
    return result


def _errors(job: Job) -> list[Any]:
    if not job.message or job.status == "succeeded":
        return []
    last = job.message.strip().splitlines()[-1].partition(":")[0].strip()
    path = last if "." in last else f"builtins.{last}" if last.isidentifier() else ""
    return [TaskError(exception_class_path=path or "builtins.Exception", traceback=job.message)]


def _result(task: Any, alias: str, id_: str, status: Any, **fields: Any) -> Any:
    empty: dict[str, Any] = {
        "enqueued_at": None, "started_at": None, "finished_at": None, "last_attempted_at": None,
        "errors": [], "worker_ids": [],
    }  # fmt: skip
    return TaskResult(task=task, id=id_, status=status, backend=alias, **{**empty, **fields})


def _priority(priority: int) -> int:
    """Django's -100 to 100 as Relevo's 0 to 9; its 0 is our 4."""
    steps = (priority - TASK_MIN_PRIORITY) * 9 // (TASK_MAX_PRIORITY - TASK_MIN_PRIORITY)
    return int(steps)
