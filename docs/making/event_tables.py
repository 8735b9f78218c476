"""Tables of metrics and events, and pictures of states and layers."""

from __future__ import annotations

import inspect
import re
import tomllib
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics import MetricWrapperBase

from relevo import App
from relevo.kernel.telemetry.metrics import Metrics
from relevo.router.events import TYPES, ChannelData, ErrorData, QueueData, SelectorData
from relevo.router.wire.envelopes import NAMES
from relevo.settings import Settings

from . import message_tables
from .setting_tables import code
from .writing import EVENT_HEADINGS, ROOT, inspect_fields, listed, table

if TYPE_CHECKING:
    from relevo.kernel.machine import Machine


def metric_table() -> str:
    """Every figure with its labels."""
    made, own = App(settings=Settings()).metrics, inspect.getsource(Metrics)
    attributes = {id(value): name for name, value in vars(made).items()}
    rows = []
    for figure in made.registry._collector_to_names:
        attribute = attributes.get(id(figure), "registry")
        within = (f"self.{attribute}.l", f"(self.{attribute}, ")  # set by what else is there
        used = re.search(rf"metrics\.{attribute}\b", code()) or any(one in own for one in within)
        for family in figure.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            text = family.documentation if used else f"{family.documentation} Not measured yet."
            labelled: Any = figure if isinstance(figure, MetricWrapperBase) else family
            rows.append([f"`{name}`", family.type, listed(labelled._labelnames), text])
    return table(["name", "type", "labels", "meaning"], rows)


def event_table() -> str:
    """Every event that is delivered, in one line."""
    rows = [
        [f"`{NAMES[one.name].rpartition('.')[2]}`", f"`{one.name}`", one.sentence]
        for one in TYPES
        if one.name in NAMES
    ]
    return table(["event", "in the log", "sent when"], rows)


def event_details() -> str:
    """What the data of every event has."""
    parts = []
    for one in TYPES:
        if one.name in NAMES:
            fields = inspect_fields(one.payload)
            shown = NAMES[one.name].rpartition(".")[2]
            parts.append(f"### {shown}\n\n{one.sentence}\n\n{table(EVENT_HEADINGS, fields)}")
    for kind in (SelectorData, QueueData, ChannelData, ErrorData):
        said = inspect.cleandoc(kind.__doc__ or "")
        fields = inspect_fields(kind)
        parts.append(f"### {kind.__name__}\n\n{said}\n\n{table(EVENT_HEADINGS, fields)}")
    return "\n".join(parts)


def layers() -> str:
    """The import contract as a picture: each level may import those to its right."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    levels = next(c["layers"] for c in told["contracts"] if c["type"] == "layers")
    names = [level.replace(" | ", " · ") for level in levels]
    return f"```text\n{' ──► '.join(names)}\n```\n"


def diagram(machine: Machine) -> str:
    """The states of something, drawn from the table that the code goes by."""
    return f"```mermaid\n{machine.mermaid()}```\n"


def message_event_data() -> str:
    """What the data of the events of messaging has."""
    return "\n".join(
        f"### {kind.__name__}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\n"
        f"{table(EVENT_HEADINGS, inspect_fields(kind))}"
        for kind in message_tables.PAYLOADS
    )
