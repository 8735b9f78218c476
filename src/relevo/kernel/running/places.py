"""Where a function stands, so that another process can import it, and how it finds it."""

from __future__ import annotations

import importlib
import runpy
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN: Final = "__relevo_main__"
"""The module name of the script that the host was started with."""


def place_of(function: Callable[..., Any]) -> tuple[str, str | None]:
    """Return `module:name` of a function, and the script to run first if it stands in one.

    Functions that have no place of their own (lambdas, those inside functions, bound or partial
    ones) are refused with `InvalidValue`.
    """
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    if not module or not qualname or "<" in qualname or hasattr(function, "__self__"):
        raise InvalidValue(
            f"{qualname or function!r} cannot run in a process of its own: that has to"
            " import it. Define it with `def` at the top of a module"
        )
    if module != "__main__":
        return f"{module}:{qualname}", None
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"{spec.name}:{qualname}", None
    script = getattr(main, "__file__", None)
    if script is None:
        raise InvalidValue(
            f"{qualname} stands in no file, so no other process can import it; put it into a module"
        )
    return f"__main__:{qualname}", script


def found_at(place: str, main: str | None = None) -> Any:
    """Return the object at `module:name`, or None; `main` is a script to run first."""
    module_name, _, qualname = place.partition(":")
    if module_name == "__main__" and main is not None:
        module_name = MAIN
        if MAIN not in sys.modules:
            module = types.ModuleType(MAIN)
            module.__dict__.update(runpy.run_path(main, run_name=MAIN))
            sys.modules[MAIN] = module
    found: Any = importlib.import_module(module_name)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found
