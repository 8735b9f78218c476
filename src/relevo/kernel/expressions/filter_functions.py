"""The functions of SQL filters, under the names by which a `FunctionCall` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions.functions import ExpressionFunction
from relevo.kernel.expressions.values import fold, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

NEW_ID: Final = "newid"
PROPERTY: Final = "property"


def _property(properties: Mapping[str, Any], name: Any) -> Any:
    """The property with a name that is itself computed; null if it, or the name, is missing."""
    if name is None:
        return None
    if type(name) is str:
        return properties.get(fold(name))
    raise ExpressionFailed(f"property() needs the name of a property and got {shown(name)}.")


FILTER_FUNCTIONS: Final[dict[str, ExpressionFunction]] = {
    NEW_ID: ExpressionFunction(0, 0, uuid4),
    PROPERTY: ExpressionFunction(2, 2, _property),
}
