"""The Dataverse surface: bulk operations, users and teams, and the Web API."""

from relevo.dataverse.bulk import Bulk, Criteria, Criterion, MatchField, Preview, RowQuery
from relevo.dataverse.users.model import User
from relevo.dataverse.users.service import Users

__all__ = [
    "Bulk",
    "Criteria",
    "Criterion",
    "MatchField",
    "Preview",
    "RowQuery",
    "User",
    "Users",
]
