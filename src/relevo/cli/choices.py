"""What selects the database or host of a command: each value, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.cli.session import CA_VARIABLE, KEY_VARIABLE, URL_VARIABLE

if TYPE_CHECKING:
    from relevo.cli.session import Session

_LOCAL: Final = {"database": "database_url", "schema": "schema", "home": "home"}
HIDDEN: Final = "hidden"


def choices_of(session: Session) -> list[tuple[str, str | None, str]]:
    """Return setting, value and origin of all that selects a database or host."""
    name = session.context[0] if session.context else None
    own = f"context {name}" if name else ""
    chosen = [("context", name, _origin_of_name(session) if name else "none")]
    if session.url is not None:
        key = HIDDEN if session.key() else None
        ca = str(session.authorities) if session.authorities else None
        return [
            *chosen,
            ("url", session.url, _origin(session, "url", (URL_VARIABLE,), own)),
            ("key", key, _origin(session, "key", (KEY_VARIABLE, f"{KEY_VARIABLE}_FILE"), own)),
            ("ca", ca, _origin(session, "ca", (CA_VARIABLE,), own)),
        ]
    settings = session.client_settings()
    for option, setting in _LOCAL.items():
        value = getattr(settings, setting)
        if option == "database" and value is not None:
            from relevo.kernel.postgres.pool import address

            value = address.place(value)
        variable = f"RELEVO_{setting.upper()}"
        origin = _origin(session, option, (variable, f"{variable}_FILE"), own)
        chosen.append((option, None if value is None else str(value), origin))
    return chosen


def _origin_of_name(session: Session) -> str:
    if session.given.get("context"):
        return "option --context"
    return "environment RELEVO_CONTEXT" if session.environ.get("RELEVO_CONTEXT") else "selected"


def _origin(session: Session, option: str, variables: tuple[str, ...], context: str) -> str:
    """Return where a value comes from; the settings file is only read without a context."""
    if session.given.get(option):
        return f"option --{option}"
    local = option in _LOCAL
    saved: Any = session.context[1] if session.context else None
    if local and saved is not None:
        return context if getattr(saved, option) else "default"
    for variable in variables:
        if session.environ.get(variable):
            return f"environment {variable}"
    if saved is not None and (getattr(saved, option) or (option == "key" and saved.key_file)):
        return context
    return "settings file or default" if local else "none"
