"""Reads another job router through the official client, an optional extra (`router-import`)."""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from relevo.errors import CallerError, InvalidValue, SettingsError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.router.importing import Collection, ImportSource
    from relevo.router.wire.documents import Document

EXTRA: Final = "router-import"
_LISTS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "distributionPolicies": ("list_distribution_policies", {}),
    "queues": ("list_queues", {}),
    "classificationPolicies": ("list_classification_policies", {}),
    "exceptionPolicies": ("list_exception_policies", {}),
    "workers": ("list_workers", {"state": "all"}),
    "jobs": ("list_jobs", {"status": "active"}),
}
"""The client's list method of each kind, with its arguments."""


@asynccontextmanager
async def opened(endpoint: str, key: str) -> AsyncIterator[ImportSource]:
    """Give the service at an endpoint as a source of an import.

    Raises `SettingsError` if the client is not installed, `InvalidValue` for an endpoint or a key
    that cannot be one.
    """
    _check(endpoint, key)
    try:
        from azure.communication.jobrouter import aio
        from azure.core.credentials import AzureKeyCredential
    except ImportError:
        raise SettingsError(
            "the official client is not installed, and the import reads through it; install it with"
            f" `pip install 'relevo[{EXTRA}]'`"
        ) from None
    address, credential = endpoint.rstrip("/"), AzureKeyCredential(key)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(
            aio.JobRouterAdministrationClient(address, credential)
        )
        router = await stack.enter_async_context(aio.JobRouterClient(address, credential))
        yield _Official(address, admin, router)


class _Official:
    def __init__(self, endpoint: str, admin: Any, router: Any) -> None:
        self._endpoint = endpoint
        self._clients = (admin, router)

    async def each(self, collection: Collection) -> AsyncIterator[Document]:
        from azure.core import exceptions

        name, wanted = _LISTS[collection]
        client = next(one for one in self._clients if hasattr(one, name))
        try:
            async for one in getattr(client, name)(**wanted):
                # The client's own enumerations are texts, which JSON makes plain.
                yield json.loads(json.dumps(one.as_dict()))
        except exceptions.ClientAuthenticationError as error:
            raise Unauthenticated(
                f"{self._endpoint} does not accept the key: {_first_line(error)}"
            ) from error
        except exceptions.HttpResponseError as error:
            raise CallerError(
                f"{self._endpoint} did not list {collection}: {_first_line(error)}"
            ) from error
        except exceptions.AzureError as error:
            raise Unavailable(
                f"cannot reach {self._endpoint}: {_first_line(error)}; nothing was lost, try again"
            ) from error


def _check(endpoint: str, key: str) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise InvalidValue(
            f"{endpoint!r} is not the endpoint of a service; give one such as"
            " https://name.communication.azure.com"
        )
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidValue(
            "the key of the source is not base64; take an access key of the service, not a"
            " connection string"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
