"""The operation types of jobs, by number: label, lane, and the creators allowed.

    label_of(13)  # "Bulk Delete"
    lane_of(13)  # "bulk"

Numbers are open: one that is not here can be stored, has its number as its label and runs in the
lane `default` if an app registers a handler for it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping

Lane = Literal["default", "workflow", "bulk", "maintenance"]

SYSTEM_EVENT: Final = 1
BULK_EMAIL: Final = 2
IMPORT_PARSE: Final = 3
IMPORT_TRANSFORM: Final = 4
IMPORT: Final = 5
ACTIVITY_PROPAGATION: Final = 6
DUPLICATE_RULE_PUBLISH: Final = 7
DUPLICATE_DETECTION: Final = 8
WORKFLOW: Final = 10
QUICK_CAMPAIGN: Final = 11
BULK_DELETE: Final = 13
DELETION_SERVICE: Final = 14
INDEX_MANAGEMENT: Final = 15
IMPORT_SUBPROCESS: Final = 17
DATABASE_STATISTICS: Final = 19
SIZE_STATISTICS: Final = 20
BULK_DELETE_SUBPROCESS: Final = 23
STORAGE_NOTIFICATION: Final = 31
ASYNC_REQUEST: Final = 54

OWN_PLATFORM: Final = (
    DELETION_SERVICE,
    INDEX_MANAGEMENT,
    DATABASE_STATISTICS,
    SIZE_STATISTICS,
    STORAGE_NOTIFICATION,
)
"""The platform's jobs that Relevo itself creates."""

DAILY_AT_MOST: Final = frozenset({DUPLICATE_DETECTION, BULK_DELETE})
"""Types that may recur, at most once a day."""

RECURRING: Final = DAILY_AT_MOST | {ASYNC_REQUEST} | frozenset(OWN_PLATFORM)
"""Types that may recur. The others are caused by an event or by another job."""

_BULK: Final = frozenset(
    {*range(2, 9), QUICK_CAMPAIGN, BULK_DELETE, IMPORT_SUBPROCESS, BULK_DELETE_SUBPROCESS, 59, 94}
    | {*range(202, 212), 300}
)


class OperationType(Struct, frozen=True):
    """An operation type: `handled` if Relevo has its handler, `platform` if it is protected."""

    number: int
    label: str
    lane: Lane
    handled: bool = False
    platform: bool = False


_HANDLED: Final = {
    SYSTEM_EVENT: "System Event",
    BULK_EMAIL: "Bulk Email",
    IMPORT_PARSE: "Import File Parse",
    IMPORT_TRANSFORM: "Transform Parse Data",
    IMPORT: "Import",
    ACTIVITY_PROPAGATION: "Activity Propagation",
    DUPLICATE_RULE_PUBLISH: "Duplicate Detection Rule Publish",
    DUPLICATE_DETECTION: "Bulk Duplicate Detection",
    WORKFLOW: "Workflow",
    QUICK_CAMPAIGN: "Quick Campaign",
    BULK_DELETE: "Bulk Delete",
    IMPORT_SUBPROCESS: "Import Subprocess",
    BULK_DELETE_SUBPROCESS: "Bulk Delete Subprocess",
    ASYNC_REQUEST: "Execute Async Request",
}

_PLATFORM: Final = {
    9: "SQM Data Collection",
    12: "Matchcode Update",
    DELETION_SERVICE: "Deletion Service",
    INDEX_MANAGEMENT: "Index Management",
    16: "Collect Organization Statistics",
    18: "Calculate Organization Storage Size",
    DATABASE_STATISTICS: "Collect Organization Database Statistics",
    SIZE_STATISTICS: "Collection Organization Size Statistics",
    21: "Database Tuning",
    22: "Calculate Organization Maximum Storage Size",
    24: "Update Statistic Intervals",
    25: "Organization Full Text Catalog Index",
    26: "Database log backup",
    27: "Update Contract States",
    28: "DBCC SHRINKDATABASE maintenance job",
    29: "DBCC SHRINKFILE maintenance job",
    30: "Reindex all indices maintenance job",
    STORAGE_NOTIFICATION: "Storage Limit Notification",
    32: "Cleanup inactive workflow assemblies",
    41: "Audit Partition Creation",
    46: "Regenerate Entity Row Count Snapshot Data",
    47: "Regenerate Read Share Snapshot Data",
    53: "Encryption Health Check",
    56: "Update Entitlement States",
    65: "Update Knowledge Article States",
    71: "Cleanup Solution Components",
    73: "ALM Anomaly Detection Operation",
    103: "Cancel Async Operations (System)",
    239: "Denormalization Async Operation",
    333: "Elastic Cascade Delete From SQL",
    334: "Elastic Cascade Delete",
    339: "Instant Entities Cleanup",
    12801: "Cascade Grant or Revoke Access Version Tracking Async Operation",
}

_LABELED: Final = {
    35: "Recurring Series Expansion",
    38: "Import Sample Data",
    40: "Goal Roll Up",
    42: "Check For Language Pack Updates",
    43: "Provision Language Pack",
    44: "Update Organization Database",
    45: "Update Solution",
    49: "Post to Yammer",
    50: "Outgoing Activity",
    51: "Incoming Email Processing",
    52: "Mailbox Test Access",
    57: "Calculate Rollup Field",
    58: "Mass Calculate Rollup Field",
    59: "Import Translation",
    62: "Convert Date And Time Behavior",
    63: "EntityKey Index Creation",
    68: "Resource Booking Sync",
    69: "Relationship Assistant Cards",
    72: "App Module Metadata Operation",
    75: "Flow Notification",
    76: "Ribbon Client Metadata Operation",
    79: "CallbackRegistration Expander Operation",
    85: "Migrate notes to attachments job",
    86: "Migrate article content to file storage",
    87: "Updated Deactived On for Resolved Cases job",
    88: "Cascade Reparent DB Async Operation",
    89: "Cascade Merge Async Operation",
    90: "CascadeAssign",
    91: "CascadeDelete",
    92: "Event Expander Operation",
    93: "Import Solution Metadata",
    94: "Bulk Delete File Attachment",
    95: "Refresh Business Unit for Records Owned By Principal",
    96: "Revoke Inherited Access",
    98: "Create Or Refresh Virtual Entity",
    100: "Cascade FlowSession Permissions Async Operation",
    101: "Update Modern Flow Async Operation",
    102: "AsyncArchive Async Operation",
    104: "Process Table For RecycleBin",
    105: "Cascade Assign All Async Operation",
    106: "Background Team Service Async Operation",
    187: "Async Restore Job",
    201: "Provision language for user",
    202: "Export Solution Async Operation",
    203: "Import Solution Async Operation",
    204: "PublishAll Async Operation",
    207: "DeleteAndPromote Async Operation",
    208: "UninstallSolution Async Operation",
    209: "ProvisionLanguage Async Operation",
    210: "ImportTranslation Async Operation",
    211: "StageAndUpgrade Async Operation",
    250: "Refresh Runtime Integration Components Async Operation",
    300: "Bulk Archive Operation",
    301: "Archive Execution Async Operation",
    302: "FinOps Deployment Async Operation",
    304: "Purge Archived Content Operation",
    305: "Register Offering Async Operation",
    306: "Execute DataProcessing Configuration",
    307: "Sync Synapse Tables Schema",
    308: "FinOps DB Sync Async Operation",
    309: "FinOps Unit Test Async Operation",
    320: "Catalog Service Generate Package Async Operation",
    321: "Catalog Service Submit Approval Request Async Operation",
    322: "Catalog Service Install Request Async Operation",
    330: "TDS Endpoint Provisioning Async Operation",
    332: "FinOps Deploy Custom Package Async Operation",
    335: "Catalog Service Poll Solution Checker Async Operation",
    336: "Catalog Service Submit Solution Checker Async Operation",
    337: "Solution Service Install After App Updates Async Operation",
    338: "Prompt Column Async Operation",
    190690091: "AI Builder Training Events",
    190690092: "AI Builder Prediction Events",
}


def lane_of(number: int) -> Lane:
    """Return the lane of a type, unless its handler names one."""
    if number < 1:
        raise InvalidValue(f"an operation type is a positive number, not {number}")
    if number in _PLATFORM:
        return "maintenance"
    if number == WORKFLOW:
        return "workflow"
    return "bulk" if number in _BULK else "default"


OPERATION_TYPES: Final[Mapping[int, OperationType]] = MappingProxyType(
    {
        number: OperationType(
            number, label, lane_of(number), handled=number in _HANDLED, platform=number in _PLATFORM
        )
        for number, label in sorted({**_HANDLED, **_PLATFORM, **_LABELED}.items())
    }
)
"""Every type that has a label, by number."""


def operation_type(number: int) -> OperationType:
    """Return a type by its number; one that is not known is labeled with it."""
    known = OPERATION_TYPES.get(number)
    return known or OperationType(number, str(number), lane_of(number))


def label_of(number: int) -> str:
    """Return the label of a type."""
    return operation_type(number).label


def is_platform(number: int, *, system: bool = False) -> bool:
    """Whether jobs of that type belong to the platform: no one may cancel, pause or resume them.

    Jobs submitted with `system=True` do, whatever their type.
    """
    return system or number in _PLATFORM
