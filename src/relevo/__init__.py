"""Relevo gets every piece of work to whoever should do it.

app = relevo.App()              # embedded PostgreSQL; or App("postgresql://…")
async with app.host():          # connect, migrate, serve
    await app.until_signal()

Every public name is here; modules below are private, except `relevo.sync` (without `await`),
`relevo.integrations` (web frameworks), `relevo.dashboard` (to mount it), `relevo.actors` and
`relevo.testing` (tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relevo.errors import *  # noqa: F403 - the names of their `__all__`
    from relevo.exports import *  # noqa: F403
    from relevo.exports import __all__ as __all__
else:
    # All parts load in about 0.4 s of CPU, which a command that uses none of them does not spend.
    from importlib import import_module
    from importlib.util import find_spec

    def __getattr__(name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        try:
            value = getattr(import_module(f"{__name__}.exports"), name)
        except AttributeError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
