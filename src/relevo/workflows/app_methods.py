"""`app.workflow`: the workflows' method of `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.kernel import callables
from relevo.workflows.definition import RegisteringWorkflow, WorkflowDefinition

if TYPE_CHECKING:
    from relevo.jobs.service import Jobs


class WorkflowMethods:
    """Makes async generators workflows."""

    jobs: Jobs

    def workflow(self, name: str, *, version: int = 1) -> RegisteringWorkflow:
        """Make an async generator a workflow; `relevo.workflows` explains the steps it yields.

        Instances keep their version: register a changed workflow under the next version.
        """
        callables.check_name(name, "app.workflow")

        def register(function: Any) -> Any:
            made = WorkflowDefinition[Any](self.jobs, name, version, function)
            self.jobs.registry.add(made.handler())
            return made

        return register
