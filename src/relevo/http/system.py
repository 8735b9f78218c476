"""Probes of a host: liveness, readiness, health and metrics; and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo import settings
from relevo.kernel.operation import PUBLIC, Operations, OtherStatus, Text
from relevo.kernel.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services


operation = Operations()


class Nothing(Struct, frozen=True):
    """A command without fields."""


class Liveness(Struct, frozen=True, kw_only=True):
    """The process answers."""

    alive: bool = True


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the host can do its work."""

    ready: bool
    reasons: list[str]
    """Why the host is not ready; empty when ready."""
    write_probe_age_seconds: float | None = None
    """How long ago a write of this host was last tried; at most every 5 s, and only if asked."""


class SettingInForce(Struct, frozen=True, kw_only=True):
    """A setting of the host that answers."""

    name: str
    value: Any
    """Null for a secret."""
    origin: str
    """The environment variable or file that set it, `argument`, or `default`."""
    default: Any
    secret: bool
    """Whether its value is left out; the origin says whether it is set."""


class SettingsShown(Struct, frozen=True):
    """All settings of a host."""

    items: list[SettingInForce]


_NOT_READY: Final = OtherStatus(503, lambda readiness: not readiness.ready, "Not ready.")


@operation("system.livez", "GET /livez", PUBLIC, in_overload=True)
async def livez(_: Services, __: Principal, ___: Nothing) -> Liveness:
    """Report that the process answers.

    The event loop answers alone, without the database: a failure calls for a restart.
    """
    return Liveness()


@operation("system.readyz", "GET /readyz", PUBLIC, outcomes=(_NOT_READY,), in_overload=True)
async def readyz(services: Services, _: Principal, __: Nothing) -> Readiness:
    """Report whether the host can do its work, and if not, why."""
    found = await health(services, _, __)
    # This one needs no key, so text after a colon (an address, an error) is left out.
    reasons = [reason.partition(":")[0] for reason in found.reasons]
    return msgspec.structs.replace(found, reasons=reasons)


@operation("system.health", "GET /v1/health", "health:read")
async def health(services: Services, _: Principal, __: Nothing) -> Readiness:
    """Report whether the host can do its work, with the reasons in full."""
    found = await services.app.health()
    return Readiness(
        ready=found.ok,
        reasons=list(found.reasons),
        write_probe_age_seconds=found.write_probe_age,
    )


@operation("system.metrics", "GET /metrics", "metrics:read", in_overload=True)
async def metrics(services: Services, _: Principal, __: Nothing) -> Text:
    """Read the metrics of this host in the text format of Prometheus."""
    return Text(CONTENT_TYPE, services.app.measure())


@operation("settings.read", "GET /v1/settings", "settings:read")
async def read_settings(services: Services, _: Principal, __: Nothing) -> SettingsShown:
    """Show the settings of this host, without secrets, and where each value comes from."""
    told = services.app.settings
    origins = settings.origins(told)
    return SettingsShown(
        [
            SettingInForce(
                name=name, value=None if secret else _plain(getattr(told, name)),
                origin=origins[name], default=_plain(getattr(settings.DEFAULTS, name)),
                secret=secret,
            )
            for name in settings.Settings.__struct_fields__
            for secret in (name in settings.SECRETS,)
        ],
    )  # fmt: skip


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
