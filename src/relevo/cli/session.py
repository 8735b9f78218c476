"""The options that all commands share, and the settings that follow from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import click

from relevo.cli.printing import note
from relevo.errors import NotFound, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.settings import Settings

Output = Literal["table", "json"]
URL_VARIABLE: Final = "RELEVO_URL"
KEY_VARIABLE: Final = "RELEVO_KEY"
CA_VARIABLE: Final = "RELEVO_CA"


class Session:
    """The options given before or after the command's name; the later one wins.

    Precedence is that of the settings: option over environment over file over default.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.given: dict[str, Any] = {}
        self._environ = os.environ if environ is None else environ
        self._said = False

    @property
    def output(self) -> Output:
        """The output format."""
        output: Output = self.given.get("output", "table")
        return output

    @property
    def debug(self) -> bool:
        """Whether errors show a traceback."""
        return bool(self.given.get("debug"))

    def settings(self, **arguments: Any) -> Settings:
        """Return the settings; `arguments` are further ones from the command line."""
        from relevo import settings  # here, because `--help` and calls over HTTP need none

        options = {
            "database_url": self.given.get("database"),
            "home": self.given.get("home"),
            "schema": self.given.get("schema"),
            "log_level": self.given.get("log_level"),
        }
        return settings.load(
            {**options, **arguments}, environ=self._environ, file=self.given.get("config")
        )

    def database_settings(self, *, creates: bool = False) -> Settings:
        """Return the settings of a command that works directly on the database, and name it.

        Raises `NotFound` if the embedded database does not exist, unless the command `creates` it.
        """
        from relevo.kernel.postgres.embedded.home_folder import holds_server
        from relevo.kernel.postgres.pool import address

        settings = self.settings()
        home = settings.home.expanduser().absolute()
        if settings.database_url is not None:
            self.say_where(f"PostgreSQL at {address.place(settings.database_url)}")
        elif creates or holds_server(home):
            self.say_where(f"embedded PostgreSQL in {home}")
        else:
            raise NotFound(
                f"there is no database in {home}; start one with: relevo up. Or choose another with"
                " --home, --database or --url"
            )
        return settings

    def say_where(self, place: str) -> None:
        """Say on standard error, once, where the answers come from; programs are not told."""
        if self.output == "table" and not self._said:
            self._said = True
            note(f"using {place}")

    @property
    def url(self) -> str | None:
        """The host to talk to over HTTP, or None to work on the database in this process."""
        url = self.given.get("url")
        local = any(self.given.get(name) for name in ("database", "schema", "home"))
        if url and local:
            raise click.UsageError("give either --url or --database, --schema and --home, not both")
        if url and self.given.get("config"):
            raise click.UsageError("--config has no effect with --url; remove one of them")
        if not url and not local:
            url = self._environ.get(URL_VARIABLE)
        return _checked_url(url) if url else None

    def key(self) -> str | None:
        """Return the access key for HTTP, or None; a key in a file is stripped of white space."""
        key = self.given.get("key") or self._environ.get(KEY_VARIABLE)
        file = self._environ.get(f"{KEY_VARIABLE}_FILE")
        if not key and file:
            try:
                key = Path(file).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(
                    f"the file in {KEY_VARIABLE}_FILE cannot be read: {error}"
                ) from None
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise SettingsError(
                "the access key has invalid characters; check --key, RELEVO_KEY or the file"
                " named by RELEVO_KEY_FILE"
            )
        return key or None

    @property
    def authorities(self) -> Path | None:
        """The file with the CA certificates to trust; None for the system's."""
        named = self.given.get("ca") or self._environ.get(CA_VARIABLE)
        return Path(named) if named else None

    def log_quietly(self) -> None:
        """Log only warnings to standard error, unless --log-level says otherwise."""
        from relevo.kernel.telemetry import configure_logs

        configure_logs(level=self.given.get("log_level") or "warning")


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        usable = usable and parts.port != 0 and parts.username is None
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(
            "--url or RELEVO_URL is not the URL of a host; use one such as http://127.0.0.1:8080,"
            " and set the key with RELEVO_KEY"
        )
    return url.rstrip("/")
