"""Every public name with the first sentence of its docstring, by the part it belongs to."""

from __future__ import annotations

import inspect
from typing import Any, Final

import relevo.actors
import relevo.dashboard
import relevo.exports
import relevo.sync
import relevo.testing

from .writing import table

PARTS: Final = {
    "app": "App and settings", "store": "Store", "feed": "Change feed", "jobs": "System jobs",
    "workflows": "Workflows", "pipeline": "Data operations", "dataverse": "Bulk operations",
    "messaging": "Messaging", "router": "Job router", "governance": "Governance",
    "kernel": "Hosts, leases and shared types",
}  # fmt: skip
MODULES: Final = {
    "relevo.actors": relevo.actors, "relevo.sync": relevo.sync, "relevo.testing": relevo.testing,
    "relevo.dashboard": relevo.dashboard,
}  # fmt: skip
ERRORS: Final = "errors"


def groups() -> dict[str, list[str]]:
    """Return the full names of what is public, by heading; errors have pages of their own."""
    found: dict[str, list[str]] = {heading: [] for heading in PARTS.values()}
    for name in relevo.exports.__all__:
        value = getattr(relevo.exports, name)
        part = (getattr(value, "__module__", None) or "relevo.app").split(".")[1:2]
        if part != [ERRORS] and not _is_error(value):
            heading = PARTS.get(part[0] if part else "app", PARTS["kernel"])
            found[_moved.get(part[0] if part else "", heading)].append(f"relevo.{name}")
    for module, contents in MODULES.items():
        found[f"`{module}`"] = [f"{module}.{name}" for name in contents.__all__]
    return {heading: names for heading, names in found.items() if names}


_moved: Final = {"settings": PARTS["app"]}


def api_tables() -> str:
    """Return a table for each part."""
    parts = []
    for heading, names in groups().items():
        rows = [[f"`{name}`", _sentence(name)] for name in sorted(names, key=str.lower)]
        parts.append(f"## {heading}\n\n{table(['name', 'meaning'], rows)}")
    return "\n".join(parts)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _sentence(name: str) -> str:
    module, _, last = name.rpartition(".")
    value = getattr(MODULES.get(module, relevo), last)
    if not (callable(value) or inspect.ismodule(value)):
        return f"`{value!r}`" if isinstance(value, (str, int)) else ""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and text == inspect.getdoc(value.__base__):
        text = ""
    return " ".join(text.split("\n\n")[0].split())
