"""The same host and command line as in `tests/e2e`."""

from __future__ import annotations

from tests.e2e.conftest import cli, site

__all__ = ["cli", "site"]
