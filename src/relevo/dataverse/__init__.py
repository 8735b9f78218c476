"""The Dataverse surface: bulk operations, users and teams, and the Web API.

Its names are loaded when they are used: commands over HTTP need the rights of roles alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from relevo.dataverse.bulk import Bulk, Criteria, Criterion, MatchField, Preview, RowQuery
    from relevo.dataverse.users.model import User
    from relevo.dataverse.users.service import Users
else:
    from importlib import import_module

    _OF_USERS = {"User": "users.model", "Users": "users.service"}

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_OF_USERS.get(name, 'bulk')}")
        return getattr(module, name)
