"""Tables of settings and limits."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from pathlib import Path
from typing import Any, Final

from relevo import limits
from relevo.kernel.leases.model import LeaseConfig
from relevo.settings import PREFIX, Settings

from .writing import ROOT, attribute_docs, meaning, table

SECONDS: Final = {
    "signature_skew",
    "drain_seconds",
    "lease_expiration",
    "lease_renew",
    "lease_acquire",
    "actors_idle_seconds",
}
"""Settings that are times."""


def settings_table() -> str:
    """Every setting, its variable, its default and its meaning."""
    said = attribute_docs(LeaseConfig, prefix="lease_") | attribute_docs(Settings)
    types = typing.get_type_hints(Settings)
    headings = ["setting", "environment", "type", "default", "meaning"]
    rows = [
        [
            f"`{name}`",
            f"`{PREFIX}{name.upper()}`",
            _type_name(types[name]),
            _default(name),
            meaning(name, said),
        ]
        for name in Settings.__struct_fields__
    ]
    return table(headings, rows)


def limit_tables() -> str:
    """Every bound under the headings of `limits.py`, and the setting that changes it, if any."""
    rows: dict[str, list[list[str]]] = {}
    heading = ""
    for line in inspect.getsource(limits).splitlines():
        if line.startswith("# "):
            heading = line[2:]
        elif heading and (named := re.match(r"([A-Z_]+): Final = ", line)):
            rows.setdefault(heading, []).append(_limit_row(named[1]))
    return "\n".join(
        f"## {heading}\n\n{table(['bound', 'value', 'setting'], found)}"
        for heading, found in rows.items()
    )


def systemd_unit() -> str:
    """The unit of `deploy`."""
    unit = (ROOT / "deploy" / "systemd" / "relevo.service").read_text("utf-8")
    return f"```ini\n{unit}```\n"


def _limit_row(name: str) -> list[str]:
    value = getattr(limits, name)
    text = f"{value:,}"
    if "_BYTES" in name:
        sizes = (("MiB", limits.MIB), ("KiB", limits.KIB), ("bytes", 1))
        text = next(f"{value // size:,} {unit}" for unit, size in sizes if value % size == 0)
    elif "_SECONDS" in name and "_PER_" not in name:
        text = f"{value:g} s"
    setting = re.search(rf"(\w+): [^\n]*limits\.{name}\b", inspect.getsource(Settings))
    note = f"`{setting[1]}`" if setting else ""
    return [f"`{name}`", text, note if re.search(rf"\b{name}\b", code()) else "not checked yet"]


@functools.cache
def code() -> str:
    """All code of the product but the tables that the reference is made from."""
    files = sorted((ROOT / "src" / "relevo").rglob("*.py"))
    tables = ("limits.py", "metrics.py")
    return "\n".join(file.read_text("utf-8") for file in files if file.name not in tables)


def _default(name: str) -> str:
    match getattr(Settings(), name):
        case None | ():
            return "none"
        case bool(value):
            return f"`{str(value).lower()}`"
        case tuple(values):
            return ", ".join(f"`{value}`" for value in values)
        case value if name in SECONDS:
            return f"{value:g} s"
        case value:
            return f"`{value}`"


def _type_name(hint: Any) -> str:
    choices = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in choices)
    if typing.get_origin(hint) is tuple:
        return "list of text"
    plain = next((one for one in choices if one is not type(None)), hint)
    if typing.get_origin(plain) is typing.Literal:
        return _type_name(plain)
    names = {Path: "path", str: "text", float: "number", int: "whole number", bool: "true or false"}
    return names[plain]
