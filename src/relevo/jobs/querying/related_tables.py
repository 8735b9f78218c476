"""The tables around jobs that query surfaces serve, read-only: users, teams, steps, bulk work."""

from __future__ import annotations

from typing import Final

from relevo.jobs.core.operation_types import WORKFLOW
from relevo.jobs.querying.catalogue import STATES, STATUSES, user_lookup, workflow_key
from relevo.kernel.querying.catalogue import Column, Navigation, Table

_UNIT: Final = Column(
    name="businessunitid",
    type="lookup",
    sql="{t}.unit",
    targets=("businessunit",),
    required=True,
)
_TO_UNIT: Final = Navigation(
    name="businessunitid",
    table="businessunit",
    column="businessunitid",
    target_column="businessunitid",
)
_CREATED: Final = Column(name="createdon", type="datetime", sql="{t}.created_at", required=True)
_MODIFIED: Final = Column(name="modifiedon", type="datetime", sql="{t}.modified_at", required=True)
_NAME: Final = Column(name="name", type="text", required=True)


def _key(name: str) -> Column:
    return Column(name=name, type="guid", sql="{t}.id", required=True)


USERS: Final = Table(
    name="systemuser",
    set_name="systemusers",
    schema_name="SystemUser",
    key="systemuserid",
    primary_name="fullname",
    source="relevo.system_user",
    columns=(
        _key("systemuserid"),
        Column(name="fullname", type="text", sql="{t}.name", required=True),
        Column(name="isdisabled", type="bool", sql="{t}.disabled", required=True),
        _UNIT,
        _CREATED,
    ),
    navigations=(_TO_UNIT,),
)
TEAMS: Final = Table(
    name="team",
    set_name="teams",
    schema_name="Team",
    key="teamid",
    primary_name="name",
    source="relevo.team",
    columns=(_key("teamid"), _NAME, _UNIT, _CREATED),
    navigations=(_TO_UNIT,),
)
UNITS: Final = Table(
    name="businessunit",
    set_name="businessunits",
    schema_name="BusinessUnit",
    key="businessunitid",
    primary_name="name",
    source="relevo.business_unit",
    columns=(
        # A lookup elsewhere has the same name, so this one is not shared.
        Column(name="businessunitid", type="guid", sql="{t}.id", required=True),
        _NAME,
        Column(
            name="parentbusinessunitid",
            type="lookup",
            sql="{t}.parent",
            targets=("businessunit",),
        ),
        _CREATED,
    ),
    navigations=(
        Navigation(
            name="parentbusinessunitid",
            table="businessunit",
            column="parentbusinessunitid",
            target_column="businessunitid",
        ),
    ),
)
STEPS: Final = Table(
    name="sdkmessageprocessingstep",
    set_name="sdkmessageprocessingsteps",
    schema_name="SdkMessageProcessingStep",
    key="sdkmessageprocessingstepid",
    primary_name="name",
    source="relevo.pipeline_step",
    columns=(
        _key("sdkmessageprocessingstepid"),
        _NAME,
        Column(name="messagename", type="text", sql="{t}.message", required=True),
        Column(name="primaryobjecttypecode", type="text", sql="{t}.table_name"),
        Column(
            name="stage",
            type="choice",
            labels={
                10: {"en": "Pre-validation", "es": "Prevalidación"},
                20: {"en": "Pre-operation", "es": "Preoperación"},
                40: {"en": "Post-operation", "es": "Postoperación"},
            },
            required=True,
        ),
        Column(
            name="mode",
            type="choice",
            labels={
                0: {"en": "Synchronous", "es": "Sincrónico"},
                1: {"en": "Asynchronous", "es": "Asincrónico"},
            },
            required=True,
        ),
        Column(name="rank", type="int", required=True),
        Column(
            name="filteringattributes",
            type="text",
            sql="nullif(array_to_string({t}.filtering, ','), '')",
        ),
        Column(name="asyncautodelete", type="bool", sql="{t}.auto_delete", required=True),
        Column(
            name="statecode",
            type="choice",
            sql="(case when {t}.enabled then 0 else 1 end)",
            labels={
                0: {"en": "Enabled", "es": "Habilitado"},
                1: {"en": "Disabled", "es": "Deshabilitado"},
            },
            required=True,
        ),
        _CREATED,
        _MODIFIED,
    ),
)
WORKFLOWS: Final = Table(
    name="workflow",
    set_name="workflows",
    schema_name="Workflow",
    key="workflowid",
    primary_name="name",
    source=f"(select {workflow_key('h.name')} as id, h.name, h.served_at as modified_at,"  # noqa: S608
    f" h.enabled from relevo.job_handler h where h.operation_type = {WORKFLOW})",
    columns=(
        _key("workflowid"),
        _NAME,
        Column(
            name="statecode",
            type="choice",
            sql="(case when {t}.enabled then 1 else 0 end)",
            labels={
                0: {"en": "Draft", "es": "Borrador"},
                1: {"en": "Activated", "es": "Activado"},
            },
            required=True,
        ),
        _MODIFIED,
    ),
)
_BULK_STATUSES: Final = {
    **STATUSES,
    11: {"en": "Retrying", "es": "Reintentando"},
    12: {"en": "Paused", "es": "En pausa"},
}
BULK_DELETES: Final = Table(
    name="bulkdeleteoperation",
    set_name="bulkdeleteoperations",
    schema_name="BulkDeleteOperation",
    key="bulkdeleteoperationid",
    primary_name="name",
    source="relevo.bulk_delete",
    owner="ownerid",
    columns=(
        Column(name="bulkdeleteoperationid", type="guid", required=True),
        _NAME,
        Column(name="asyncoperationid", type="lookup", targets=("asyncoperation",), required=True),
        Column(
            name="orderedquerysetxml",
            type="memo",
            sql="({t}.orderedquerysetxml::text)",
            payload=True,
        ),
        Column(name="processingqeindex", type="int", required=True),
        Column(name="successcount", type="bigint", required=True),
        Column(name="failurecount", type="bigint", required=True),
        Column(name="isrecurring", type="bool"),
        Column(name="nextrun", type="datetime"),
        user_lookup("ownerid", "{t}.ownerid"),
        Column(name="createdon", type="datetime", required=True),
        Column(name="statecode", type="choice", labels=STATES),
        Column(name="statuscode", type="choice", labels=_BULK_STATUSES),
    ),
    navigations=(
        Navigation(
            name="asyncoperationid",
            table="asyncoperation",
            column="asyncoperationid",
            target_column="asyncoperationid",
        ),
        Navigation(
            name="BulkDeleteOperation_BulkDeleteFailures",
            table="bulkdeletefailure",
            column="bulkdeleteoperationid",
            target_column="bulkdeleteoperationid",
            collection=True,
        ),
    ),
)
BULK_FAILURES: Final = Table(
    name="bulkdeletefailure",
    set_name="bulkdeletefailures",
    schema_name="BulkDeleteFailure",
    key="bulkdeletefailureid",
    primary_name="errordescription",
    source="(select f.*, d.ownerid from relevo.bulk_delete_failure f"
    " join relevo.bulk_delete d on d.bulkdeleteoperationid = f.bulkdeleteoperationid)",
    owner="ownerid",
    columns=(
        Column(name="bulkdeletefailureid", type="guid", required=True),
        Column(
            name="bulkdeleteoperationid",
            type="lookup",
            targets=("bulkdeleteoperation",),
            required=True,
        ),
        Column(name="asyncoperationid", type="lookup", targets=("asyncoperation",), required=True),
        Column(name="regardingobjectid", type="text", required=True),
        Column(name="errornumber", type="int", required=True),
        Column(name="errordescription", type="text", required=True),
        Column(name="orderedqueryindex", type="int", required=True),
        user_lookup("ownerid", "{t}.ownerid"),
        Column(name="createdon", type="datetime", required=True),
    ),
    navigations=(
        Navigation(
            name="bulkdeleteoperationid",
            table="bulkdeleteoperation",
            column="bulkdeleteoperationid",
            target_column="bulkdeleteoperationid",
        ),
        Navigation(
            name="asyncoperationid",
            table="asyncoperation",
            column="asyncoperationid",
            target_column="asyncoperationid",
        ),
    ),
)

RELATED_TABLES: Final = (USERS, TEAMS, UNITS, STEPS, WORKFLOWS, BULK_DELETES, BULK_FAILURES)
