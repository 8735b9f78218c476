"""What exists for Dataverse's surfaces: bulk operations, users and teams, and the web API."""

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
