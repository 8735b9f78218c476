"""Parts of an app by themselves, for tests that do not go through its whole life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relevo.kernel.part import Host

if TYPE_CHECKING:
    from relevo import App
    from relevo.kernel.part import Part


async def serve(app: App, kind: type[Part[Any]]) -> None:
    """Let a host serve what was defined since it started."""
    part = app.parts.of(kind)
    await part.declare()
    await part.start(Host(app.leases, app.supervisor))
