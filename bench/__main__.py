"""Runs benches and shows what they measured; exits with 1 if a figure is not as promised."""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from bench import Figure

BENCHES = (
    "grouping", "leases", "feed", "events", "router", "jobs", "messaging", "actors",
    "postgresql", "costs", "idle", "growth", "dashboard",
)  # fmt: skip


def main(names: list[str]) -> int:
    console = Console(width=110)
    if unknown := set(names) - set(BENCHES):
        console.print(
            f"no bench named {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}"
        )
        return 2
    console.print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    failed = False
    for name in names or BENCHES:
        module = importlib.import_module(f"bench.{name}")
        figures: list[Figure] = asyncio.run(module.run())
        console.print(_table(name, figures))
        console.print(module.HOW.strip(), style="dim", highlight=False)
        failed = failed or any(figure.holds is False for figure in figures)
    return int(failed)


def _table(name: str, figures: list[Figure]) -> Table:
    table = Table(title=name, title_justify="left")
    table.add_column("figure")
    for heading in ("measured", "beside", "ratio", "promised"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for figure in figures:
        sign = "≥" if figure.sense == "at_least" else "≤"
        table.add_row(
            figure.name,
            f"{_number(figure.measured)} {figure.unit}",
            "" if figure.beside is None else _number(figure.beside),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            "" if figure.bound is None else f"{sign} {figure.bound}",
            {True: "holds", False: "MISSED", None: ""}[figure.holds],
        )
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
