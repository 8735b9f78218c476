"""The event pipeline: data operations on tables, and steps that react to them.

    app.table("order", app.container("orders", partition_key="/id"))

    @app.step("Update", "order", stage=POST, mode=ASYNC, images=[Pre("status")])
    async def notify(ctx: StepContext) -> None: ...

    await app.service.update("order", "1", {"status": "paid"})

An operation and its synchronous steps are one transaction; asynchronous steps become jobs in it.
"""

from relevo.pipeline.contexts import StepContext
from relevo.pipeline.data_service import DataService
from relevo.pipeline.model import (
    ASYNC,
    BYPASS_RIGHT,
    POST,
    PRE_OPERATION,
    PRE_VALIDATION,
    SYNC,
    Post,
    Pre,
    Step,
    Target,
)
from relevo.pipeline.service import Pipeline
from relevo.pipeline.tables import Table

__all__ = [
    "ASYNC",
    "BYPASS_RIGHT",
    "POST",
    "PRE_OPERATION",
    "PRE_VALIDATION",
    "SYNC",
    "DataService",
    "Pipeline",
    "Post",
    "Pre",
    "Step",
    "StepContext",
    "Table",
    "Target",
]
