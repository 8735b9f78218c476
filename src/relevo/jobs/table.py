"""System jobs as queries name them: the table `asyncoperation` of async-service 2.

Python's queries, OData and FetchXML read it alike; who serves it over the wire adds navigations.
"""

from __future__ import annotations

from typing import Final

from relevo.jobs import operation_types, states
from relevo.querying.catalogue import Catalogue, Column, ColumnType, Labels, Table

_SPANISH: Final = {
    "Ready": "Lista", "Suspended": "Suspendida", "Locked": "Bloqueada", "Completed": "Completada",
    "Waiting For Resources": "Esperando recursos", "Waiting": "En espera",
    "In Progress": "En curso", "Pausing": "En pausa", "Canceling": "Cancelándose",
    "Succeeded": "Correcta", "Failed": "Con error", "Canceled": "Cancelada",
}  # fmt: skip

STATES: Final[Labels] = {
    number: {"en": text, "es": _SPANISH[text]} for number, text in states.STATE_LABELS.items()
}
STATUSES: Final[Labels] = {
    number: {"en": text, "es": _SPANISH[text]} for number, text in states.LABELS.items()
}
TYPES: Final[Labels] = {
    number: {"en": one.label} for number, one in operation_types.OPERATION_TYPES.items()
}

LIVE: Final = "(select * from relevo.job where not deleted)"
HISTORY: Final = "relevo.job_history"
BLOCKED_BY: Final = (
    "(case when {t}.chained then nullif(coalesce("
    "(select h.id from relevo.job h where h.chain = {t}.chain and not h.chained), "
    "(select h.id from relevo.job h where h.chain = {t}.chain order by h.sequence limit 1)"
    "), {t}.id) end)"
)
"""The job of the same chain that is open, or the oldest as long as none is."""

_PLAIN: Final[tuple[tuple[str, ColumnType, str], ...]] = (
    ("name", "text", "name"),
    ("messagename", "text", ""),
    ("primaryentitytype", "text", "regarding_type"),
    ("postponeuntil", "datetime", "postpone_until"),
    ("startedon", "datetime", "started_at"),
    ("completedon", "datetime", "completed_at"),
    ("executiontimespan", "float", "run_seconds"),
    ("dependencytoken", "text", "token"),
    ("depth", "int", "depth"),
    ("correlationid", "guid", "correlation"),
    ("correlationupdatedtime", "datetime", "correlation_at"),
    ("requestid", "guid", "request"),
    ("errorcode", "int", "error_code"),
    ("friendlymessage", "memo", "friendly"),
    ("retrycount", "int", "retries"),
    ("iswaitingforevent", "bool", "waiting_event"),
    ("recurrencepattern", "text", "pattern"),
    ("recurrencestarttime", "datetime", "anchor"),
    ("retainjobhistory", "bool", "retain"),
    ("hostid", "text", "host_name"),
    ("relevo_priority", "int", "priority"),
    ("relevo_timezone", "text", "zone"),
    ("relevo_progress", "float", "progress"),
    ("relevo_seriesid", "guid", "series"),
    ("relevo_attempt", "int", "attempt"),
    ("relevo_lane", "text", "lane"),
    ("relevo_crashes", "int", "crashes"),
    ("relevo_handler", "text", "handler"),
    ("relevo_extension", "text", "extension"),
)
_PAYLOAD: Final[tuple[tuple[str, ColumnType, str], ...]] = (
    ("data", "memo", "data"),
    ("message", "memo", "message"),
    ("relevo_state", "json", "saved"),
    ("relevo_result", "json", "result"),
)

COLUMNS: Final = (
    Column(name="asyncoperationid", type="guid", sql="{t}.id", required=True),
    Column(name="statecode", type="choice", sql="({t}.status / 10)", labels=STATES, required=True),
    Column(name="statuscode", type="choice", sql="{t}.status", labels=STATUSES, required=True),
    Column(name="operationtype", type="choice", sql="{t}.operation_type", labels=TYPES),
    Column(name="createdon", type="datetime", sql="{t}.created_at", required=True),
    Column(name="modifiedon", type="datetime", sql="{t}.modified_at", required=True),
    Column(name="sequence", type="bigint", required=True),
    Column(name="versionnumber", type="bigint", sql="{t}.version", required=True),
    Column(name="ownerid", type="lookup", sql="{t}.owner", targets=("systemuser",)),
    Column(name="createdby", type="lookup", sql="{t}.created_by", targets=("systemuser",)),
    Column(name="modifiedby", type="lookup", sql="{t}.modified_by", targets=("systemuser",)),
    Column(name="relevo_blockedby", type="guid", sql=BLOCKED_BY),
    *(
        Column(
            name=name,
            type=kind,
            sql=f"{{t}}.{column}" if column else "coalesce({t}.message_name, {t}.handler)",
        )
        for name, kind, column in _PLAIN
    ),
    *(
        Column(name=name, type=kind, sql=f"{{t}}.{column}", payload=True)
        for name, kind, column in _PAYLOAD
    ),
)

JOBS: Final = Table(
    name="asyncoperation",
    set_name="asyncoperations",
    schema_name="AsyncOperation",
    key="asyncoperationid",
    primary_name="name",
    source="relevo.jobs",
    owner="ownerid",
    version="versionnumber",
    columns=COLUMNS,
    sources_by_state={
        "statecode": {
            number: HISTORY if number == 3 else LIVE for number in states.STATE_LABELS
        },
        "statuscode": {
            number: HISTORY if number in states.COMPLETED else LIVE for number in states.LABELS
        },
    },
)  # fmt: skip

CATALOGUE: Final = Catalogue((JOBS,))
