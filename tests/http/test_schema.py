"""The OpenAPI document against the running host: generated requests, right and wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

from relevo.http.operations import OPERATIONS
from tests.conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.http.conftest import Site

pytestmark = pytest.mark.anyio

# Not that all well-formed requests are taken: cursors are opaque, and roles are known by name.
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
REFUSED = {"enabled": True, "expected-statuses": ["4xx"]}
CONFIG = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": REFUSED}})


def check_operation(site: Site, operation: Any, mode: GenerationMode) -> None:
    """Send generated requests of an admin; runs in a thread, for the client is synchronous."""
    headers = {"Authorization": f"Bearer {site.secrets['admin']}"}

    @settings(
        max_examples=EXAMPLES // 20, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=site.address.url, headers=headers, checks=CHECKS)

    check()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
async def test_answers_are_as_documented(site: Site, mode: GenerationMode) -> None:
    document = (await site.ask("GET", "/openapi.json")).json
    schema = schemathesis.openapi.from_dict(document, config=CONFIG)
    async with site.services.app.host():
        for each in OPERATIONS:
            if mode is GenerationMode.POSITIVE or each.request.__struct_fields__:
                operation = schema.find_operation_by_id(each.name)
                await anyio.to_thread.run_sync(check_operation, site, operation, mode)
