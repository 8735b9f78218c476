"""Workflows: async generators whose every `yield` is a durable step.

    @app.workflow("order")
    async def order(ctx, id: str):
        yield Stage("charge", charge, id)
        try:
            answer = yield Wait(event="approved", key=id, timeout=86_400)
        except WaitTimedOut:
            yield Stage("refund", refund, id)
            return
        yield Call("ship", {"id": id, "by": answer["by"]})

Relevo stores the result of a step before the next begins. When an instance continues, after a wait,
a pause, a retry or a crash, its generator starts again and receives the stored results until it is
where it was. So code between steps runs again each time, and must only make decisions. Code with
effects, or with results that can differ (clocks, random numbers, reads), belongs in the function of
a `Stage`, which is not called again after its result is stored. A crash before that calls it twice.

An instance keeps the version of the definition that it started with. Register a changed workflow
under a new `version`, and keep the old function until its instances are done. An instance whose
generator yields other steps than those stored is suspended with a text that names the step.
"""

from relevo.workflows.definition import WorkflowDefinition
from relevo.workflows.steps import Call, Return, Stage, Wait, WaitTimedOut

__all__ = ["Call", "Return", "Stage", "Wait", "WaitTimedOut", "WorkflowDefinition"]
