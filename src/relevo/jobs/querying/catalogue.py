"""Jobs and their related tables, as query languages see them.

    catalogue = served(tables of the pipeline)

Every other table gets the collection `<SchemaName>_AsyncOperations` of the jobs regarding its rows,
and jobs get the inverse, `regardingobjectid_<table>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from relevo.jobs.core.operation_types import OPERATION_TYPES, WORKFLOW
from relevo.jobs.model import SYSTEM
from relevo.jobs.states import COMPLETED, LABELS, LIVE, STATE_LABELS
from relevo.kernel.querying.catalogue import Catalogue, Column, Navigation, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.kernel.querying.catalogue import ColumnType, Labels

_SPANISH_STATES: Final = {0: "Preparada", 1: "Suspendida", 2: "Bloqueado", 3: "Finalizado"}
_SPANISH_STATUSES: Final = {
    0: "Esperando recursos",
    10: "En espera",
    20: "En curso",
    21: "Pausando",
    22: "Cancelando",
    30: "Correcto",
    31: "Error",
    32: "Cancelado",
}
_SPANISH_TYPES: Final = {
    9: "Recolección de datos SQM",
    16: "Recopilar estadísticas de la organización",
    18: "Calcular tamaño de almacenamiento de la organización",
    19: "Recopilar estadísticas de la base de datos de la organización",
    20: "Recopilar estadísticas del tamaño de la organización",
    22: "Calcular tamaño de almacenamiento máximo de la organización",
    24: "Actualizar intervalos de estadísticas",
    25: "Índice del catálogo de texto completo de la organización",
    27: "Actualizar estados de contrato",
    31: "Notificador de límite de almacenamiento",
}


def _labels(english: dict[int, str], spanish: dict[int, str]) -> Labels:
    return {
        number: {"en": text, **({"es": spanish[number]} if number in spanish else {})}
        for number, text in english.items()
    }


STATES: Final = _labels(STATE_LABELS, _SPANISH_STATES)
STATUSES: Final = _labels(LABELS, _SPANISH_STATUSES)
_TYPES: Final = _labels(
    {number: one.label for number, one in OPERATION_TYPES.items()}, _SPANISH_TYPES
)
_LIVE: Final = "relevo.live_job"
_DONE: Final = "relevo.job_history"
_BLOB: Final = "(case when octet_length({t}.data) > 65536 then {t}.id end)"
_HEAD: Final = (
    "(case when {t}.chained then nullif(coalesce("
    "(select h.id from relevo.job h where h.chain = {t}.chain and not h.chained),"
    " (select h.id from relevo.job h where h.chain = {t}.chain order by h.sequence limit 1)),"
    " {t}.id) end)"
)
"""The open job of the chain, or the oldest as long as none is: as `chain_heads` has it."""
_OWNER: Final = f"coalesce({{t}}.owner, '{SYSTEM}'::uuid)"
_CREATOR: Final = f"coalesce({{t}}.created_by, '{SYSTEM}'::uuid)"


def workflow_key(handler: str) -> str:
    """Return the SQL of the key of a workflow's definition, by that of its handler's name."""
    return f"md5('workflow ' || {handler})::uuid"


def _of_workflow(sql: str) -> str:
    """A column that only workflow instances have."""
    return f"(case when {{t}}.operation_type = {WORKFLOW} then {sql} end)"


def _of_owner(what: str, table: str = "owner") -> str:
    return f"(select o.{what} from relevo.{table} o where o.id = {_OWNER})"  # noqa: S608 - ours


def user_lookup(name: str, sql: str) -> Column:
    """Return a lookup of a user."""
    return Column(name=name, type="lookup", sql=sql, targets=("systemuser",))


def _detail(
    name: str, kind: ColumnType = "text", cast: str = "", *, payload: bool = False
) -> Column:
    """A rare column, kept among the details of a job."""
    value = f"({{t}}.details ->> '{name}')"
    return Column(name=name, type=kind, sql=f"{value}{cast}", payload=payload)


_COLUMNS: Final = (
    Column(name="asyncoperationid", type="guid", sql="{t}.id", required=True),
    Column(name="name", type="text", required=True),
    Column(
        name="operationtype",
        type="choice",
        sql="{t}.operation_type",
        labels=_TYPES,
        required=True,
    ),
    Column(name="messagename", type="text", sql="coalesce({t}.message_name, {t}.handler)"),
    Column(
        name="primaryentitytype",
        type="text",
        sql="coalesce({t}.details ->> 'primaryentitytype', {t}.regarding_type)",
    ),
    Column(
        name="ownerid",
        type="lookup",
        sql=_OWNER,
        targets=("systemuser", "team"),
        target=f"coalesce({_of_owner('kind')}, 'systemuser')",
    ),
    user_lookup("owninguser", _of_owner("id", "system_user")),
    Column(name="owningteam", type="lookup", sql=_of_owner("id", "team"), targets=("team",)),
    Column(
        name="owningbusinessunit", type="lookup", sql=_of_owner("unit"), targets=("businessunit",)
    ),
    user_lookup("createdby", _CREATOR),
    Column(name="createdon", type="datetime", sql="{t}.created_at", required=True),
    user_lookup("createdonbehalfby", "({t}.details ->> 'createdonbehalfby')::uuid"),
    user_lookup("modifiedby", f"coalesce({{t}}.modified_by, '{SYSTEM}'::uuid)"),
    Column(name="modifiedon", type="datetime", sql="{t}.modified_at", required=True),
    user_lookup("modifiedonbehalfby", "({t}.details ->> 'modifiedonbehalfby')::uuid"),
    Column(
        name="owningextensionid",
        type="lookup",
        sql="(select s.id from relevo.pipeline_step s"
        " where s.name = {t}.extension or s.id::text = {t}.extension)",
        targets=("sdkmessageprocessingstep",),
    ),
    Column(
        name="workflowactivationid",
        type="lookup",
        sql=_of_workflow(workflow_key("{t}.handler")),
        targets=("workflow",),
    ),
    Column(name="statecode", type="choice", sql="({t}.status / 10)", labels=STATES, required=True),
    Column(name="statuscode", type="choice", sql="{t}.status", labels=STATUSES, required=True),
    Column(name="postponeuntil", type="datetime", sql="{t}.postpone_until"),
    Column(name="startedon", type="datetime", sql="{t}.started_at"),
    Column(name="completedon", type="datetime", sql="{t}.completed_at"),
    Column(name="executiontimespan", type="float", sql="{t}.run_seconds", required=True),
    Column(name="dependencytoken", type="text", sql="{t}.token"),
    Column(name="sequence", type="bigint", required=True),
    Column(name="depth", type="int", required=True),
    Column(name="correlationid", type="guid", sql="{t}.correlation"),
    Column(name="correlationupdatedtime", type="datetime", sql="{t}.correlation_at"),
    Column(name="requestid", type="guid", sql="{t}.request"),
    _detail("parentpluginexecutionid", "guid", "::uuid"),
    _detail("callerorigin"),
    Column(name="data", type="memo", payload=True),
    Column(  # large values are stored apart, under the job's own key
        name="datablobid", type="guid", sql=_BLOB, filterable=False
    ),
    Column(name="errorcode", type="int", sql="{t}.error_code"),
    # A trace names files, and may contain users' data.
    Column(name="message", type="memo", payload=True),
    Column(name="friendlymessage", type="memo", sql="{t}.friendly"),
    Column(name="retrycount", type="int", sql="{t}.retries", required=True),
    Column(name="iswaitingforevent", type="bool", sql="{t}.waiting_event", required=True),
    Column(name="recurrencepattern", type="text", sql="{t}.pattern"),
    Column(name="recurrencestarttime", type="datetime", sql="{t}.anchor"),
    Column(name="retainjobhistory", type="bool", sql="{t}.retain", required=True),
    Column(name="hostid", type="text", sql="{t}.host_name"),
    _detail("subtype", "int", "::integer"),
    _detail("workload"),
    _detail("breadcrumbid", "guid", "::uuid"),
    _detail("expanderstarttime", "datetime", "::timestamptz"),
    _detail("rootexecutioncontext", "memo", payload=True),
    # The journal of an instance is its saved state.
    Column(
        name="workflowstagename", type="text", sql=_of_workflow("({t}.saved::json ->> 'stage')")
    ),
    Column(name="workflowisblocked", type="bool", sql=_of_workflow("{t}.waiting_event")),
    Column(name="workflowstate", type="memo", sql=_of_workflow("{t}.saved"), payload=True),
    Column(
        name="utcconversiontimezonecode",
        type="int",
        sql=f"(select u.zone_code from relevo.system_user u where u.id = {_CREATOR})",  # noqa: S608
    ),
    _detail("timezoneruleversionnumber", "int", "::integer"),
    Column(name="versionnumber", type="bigint", sql="{t}.version", required=True),
    Column(name="relevo_priority", type="int", sql="{t}.priority", required=True),
    Column(name="relevo_timezone", type="text", sql="{t}.zone"),
    Column(name="relevo_progress", type="float", sql="({t}.progress::numeric::float8)"),
    Column(name="relevo_seriesid", type="guid", sql="{t}.series"),
    Column(name="relevo_batchid", type="guid", sql="{t}.batch"),
    Column(name="relevo_originid", type="guid", sql="{t}.origin"),
    Column(name="relevo_attempt", type="int", sql="{t}.attempt", required=True),
    Column(
        name="relevo_blockedby",
        type="guid",
        sql=_HEAD,
        filterable=False,
        key_of="asyncoperation",
        key_source="relevo.job",
    ),
    # Also for callers that may not see the job it waits for.
    Column(name="relevo_isblocked", type="bool", sql=f"({_HEAD} is not null)", filterable=False),
    Column(name="relevo_lane", type="text", sql="{t}.lane", required=True),
    Column(name="relevo_handler", type="text", sql="{t}.handler", required=True),
    Column(name="relevo_extension", type="text", sql="{t}.extension"),
    Column(name="relevo_crashes", type="int", sql="{t}.crashes", required=True),
    Column(name="relevo_state", type="json", sql="{t}.saved", payload=True),
    Column(name="relevo_result", type="json", sql="{t}.result", payload=True),
)

_NAVIGATIONS: Final = (
    *(
        Navigation(name=name, table="systemuser", column=name, target_column="systemuserid")
        for name in (
            "owninguser",
            "createdby",
            "createdonbehalfby",
            "modifiedby",
            "modifiedonbehalfby",
        )
    ),
    Navigation(name="owningteam", table="team", column="owningteam", target_column="teamid"),
    Navigation(
        name="owningbusinessunit",
        table="businessunit",
        column="owningbusinessunit",
        target_column="businessunitid",
    ),
    Navigation(
        name="owningextensionid",
        table="sdkmessageprocessingstep",
        column="owningextensionid",
        target_column="sdkmessageprocessingstepid",
    ),
    Navigation(
        name="workflowactivationid",
        table="workflow",
        column="workflowactivationid",
        target_column="workflowid",
    ),
    Navigation(
        name="AsyncOperation_BulkDeleteOperation",
        table="bulkdeleteoperation",
        column="asyncoperationid",
        target_column="asyncoperationid",
        collection=True,
    ),
)

JOBS: Final = Table(
    name="asyncoperation",
    set_name="asyncoperations",
    schema_name="AsyncOperation",
    key="asyncoperationid",
    primary_name="name",
    source="relevo.jobs",
    by_keys="relevo.jobs_by_id({keys})",
    owner="ownerid",
    unit="owningbusinessunit",
    version="versionnumber",
    sources_by_state={
        "statecode": {0: _LIVE, 1: _LIVE, 2: _LIVE, 3: _DONE},
        "statuscode": {**dict.fromkeys(LIVE, _LIVE), **dict.fromkeys(COMPLETED, _DONE)},
    },
    columns=_COLUMNS,
    navigations=_NAVIGATIONS,
)
"""System jobs; `regardingobjectid` is added by `served`, which knows the tables."""


def served(others: Iterable[Table]) -> Catalogue:
    """Return the catalogue of jobs and of other tables, related to each other."""
    tables = tuple(others)
    regarding = Column(
        name="regardingobjectid",
        type="lookup",
        sql="{t}.regarding_id",
        stored="text",
        targets=tuple(table.name for table in tables),
        target="{t}.regarding_type",
    )
    ways = tuple(
        Navigation(
            name=f"regardingobjectid_{table.name}",
            table=table.name,
            column="regardingobjectid",
            target_column=table.key,
        )
        for table in tables
    )
    jobs = replace(JOBS, columns=(*JOBS.columns, regarding), navigations=(*JOBS.navigations, *ways))
    return Catalogue((jobs, *map(_with_jobs, tables)))


def _with_jobs(table: Table) -> Table:
    way = Navigation(
        name=f"{table.schema_name}_AsyncOperations",
        table=JOBS.name,
        column=table.key,
        target_column="regardingobjectid",
        collection=True,
    )
    return replace(table, navigations=(*table.navigations, way))
