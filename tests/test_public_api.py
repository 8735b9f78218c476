"""What a package's `__all__` names is the API: sorted, there and documented."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import relevo
from relevo import App, errors
from relevo.dataverse.bulk.imports import ImportOptions
from relevo.dataverse.bulk.model import ImportArguments
from relevo.feed.options import EventProcessorOptions, ProcessorOptions, ProcessorSettings
from relevo.jobs.model import CommonOptions, SubmitOptions

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final = [
    "relevo.dataverse",
    "relevo.feed",
    "relevo.governance",
    "relevo.jobs",
    "relevo.messaging",
    "relevo.pipeline",
    "relevo.router",
    "relevo.store",
    "relevo.workflows",
]
PACKAGES: Final = [
    "relevo",
    *PARTS,
    "relevo.errors",
    "relevo.kernel.events",
    "relevo.kernel.leases",
    "relevo.kernel.postgres",
    "relevo.testing",
]
INNER: Final = {
    "relevo.feed": {"ChangeContext", "ChangePage"},
    "relevo.store": {"Interval", "ItemPage", "Range", "RangeMap", "patch"},
}
"""Names of parts that another part has too, or that only other parts use."""
SERVICES: Final = [
    "bulk",
    "events",
    "feeds",
    "jobs",
    "messaging",
    "pipeline",
    "router",
    "service",
    "store",
    "users",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_once_and_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    own = set(errors.__all__) if package == "relevo" else set()  # listed there, in the same order
    names = [name for name in module.__all__ if name not in own]
    assert len(module.__all__) == len({*names, *own})
    constants = sorted(name for name in names if name.isupper())
    classes = sorted(name for name in names if not name.isupper() and name[0].isupper())
    functions = sorted(name for name in names if name[0].islower())
    assert names == constants + classes + functions
    for name in classes + functions:
        assert inspect.getdoc(getattr(module, name)), f"{package}.{name} says nothing"
    assert module.__doc__


@pytest.mark.parametrize("package", PARTS)
def test_the_names_of_every_part_are_names_of_relevo(package: str) -> None:
    part = importlib.import_module(package)
    other = {
        name for name in part.__all__ if getattr(relevo, name, None) is not getattr(part, name)
    }
    assert other == INNER.get(package, set())


def test_every_error_is_a_name_of_relevo() -> None:
    assert {
        name for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, errors.RelevoError)
    } <= set(relevo.__all__)  # fmt: skip


PUBLIC = {
    "relevo", "relevo.actors", "relevo.dashboard", "relevo.testing", "relevo.sync",
    "relevo.integrations.django", "relevo.integrations.starlette",
}  # fmt: skip


def test_examples_import_from_relevo_alone() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    imports = re.compile(
        r"^\s*(?:from (relevo[\w.]*) import|import (relevo\.[\w.]+))", re.MULTILINE
    )
    found = {
        (page.name, found[1] or found[2])
        for page in pages
        for found in imports.finditer(page.read_text())
    }
    assert {(page, module) for page, module in found if module not in PUBLIC} == set()


@pytest.mark.parametrize("name", SERVICES)
def test_what_users_hold_has_no_life_cycle(name: str) -> None:
    service = getattr(App(database_url="postgresql://nowhere/x"), name)
    assert not {"attach", "start", "stop", "close", "duties", "declare"} & set(dir(service))


def test_a_processor_has_no_life_cycle() -> None:
    assert not {"attach", "start", "stop", "close", "join", "leave"} & set(dir(relevo.Processor))


@pytest.mark.parametrize("name", ["container", "job", "message", "step", "table", "workflow"])
def test_what_defines_handlers_is_a_method_of_app_with_its_options(name: str) -> None:
    method = inspect.getattr_static(App, name)
    assert inspect.isfunction(method)
    kinds = {one.kind for one in inspect.signature(method).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def options_of(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_typed_options_are_those_that_are_taken() -> None:
    taken = set(ProcessorSettings.__struct_fields__)
    assert set(ProcessorOptions.__annotations__) == taken
    assert set(EventProcessorOptions.__annotations__) == taken - {"mode", "leases", "model"}
    assert set(ImportArguments.__annotations__) == set(ImportOptions.__struct_fields__) - {
        "lookups"
    }
    submit = options_of(relevo.Jobs.submit)
    assert set(SubmitOptions.__annotations__) == submit
    assert set(CommonOptions.__annotations__) == submit - {"tx", "unique", "recurrence", "timezone"}
