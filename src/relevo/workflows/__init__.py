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

What a step came to is written down before the next begins. When an instance goes on, after a wait,
a pause, a retry or a crash, its generator is started anew and gets the written results, so that it
arrives where it was. Code between steps therefore runs again, each time: it must only decide. What
has effects, or could come out otherwise another time (clocks, random numbers, reads), belongs into
the function of a `Stage`, which is not called again once its result is written. A crash before that
calls it twice.

An instance keeps the version of the definition that it began with. Register a changed workflow
under a new `version`, and leave the old function until its instances are done; one that yields
other steps than were written down is suspended with a text that names the step.
"""

from relevo.workflows.definition import WorkflowDefinition
from relevo.workflows.steps import Call, Return, Stage, Wait, WaitTimedOut

__all__ = ["Call", "Return", "Stage", "Wait", "WaitTimedOut", "WorkflowDefinition"]
