"""What a package's `__all__` names is the API: sorted, there and documented."""

from __future__ import annotations

import importlib
import inspect

import pytest

PACKAGES = [
    "relevo",
    "relevo.kernel.events",
    "relevo.feed",
    "relevo.kernel.leases",
    "relevo.kernel.postgres",
    "relevo.store",
    "relevo.testing",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_once_and_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    names: list[str] = module.__all__
    constants = sorted(name for name in names if name.isupper())
    classes = sorted(name for name in names if not name.isupper() and name[0].isupper())
    functions = sorted(name for name in names if name[0].islower())
    assert names == constants + classes + functions
    for name in classes + functions:
        assert inspect.getdoc(getattr(module, name)), f"{package}.{name} says nothing"
    assert module.__doc__
