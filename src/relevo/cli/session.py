"""The options that all commands share, and the settings that follow from them."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import urlsplit

import click

from relevo.cli.output.printing import note
from relevo.errors import NotFound, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.cli.contexts import Context
    from relevo.settings import Settings

Output = Literal["table", "json", "yaml", "csv", "ids"]
OUTPUTS: Final[tuple[Output, ...]] = get_args(Output)
URL_VARIABLE: Final = "RELEVO_URL"
KEY_VARIABLE: Final = "RELEVO_KEY"
CA_VARIABLE: Final = "RELEVO_CA"
DIRECT_VARIABLES: Final = (
    URL_VARIABLE, "RELEVO_DATABASE_URL", "RELEVO_DATABASE_URL_FILE", "RELEVO_SCHEMA", "RELEVO_HOME"
)  # fmt: skip
"""Variables that select a database or host."""


class Session:
    """The options given before or after the command's name; the later one wins.

    Precedence is that of the settings: option over environment over file over default.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.given: dict[str, Any] = {}
        self.environ = os.environ if environ is None else environ
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
            {**options, **arguments}, environ=self.environ, file=self.given.get("config")
        )

    def database_settings(self, *, creates: bool = False) -> Settings:
        """Return the settings of a command that works directly on the database, and name it.

        Raises `NotFound` if the embedded database does not exist, unless the command `creates` it.
        """
        from relevo.kernel.postgres.embedded.home_folder import holds_server
        from relevo.kernel.postgres.pool import address

        settings = self.client_settings()
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

    def client_settings(self) -> Settings:
        """Return the settings of a command for an installation: a context counts in them.

        An option wins over the environment, so --home selects the embedded database in it.
        """
        import msgspec  # here, because `--help` and calls over HTTP need none

        settings = self.settings()
        if self.given.get("home") and not self.given.get("database"):
            return msgspec.structs.replace(settings, database_url=None)
        if self.context is None:
            return settings
        context = self.context[1]
        changes = {"database_url": context.database, "schema": context.schema, "home": context.home}
        kept: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        if "home" in kept:
            kept["home"] = Path(kept["home"])
        return msgspec.structs.replace(settings, **{"database_url": None, **kept})

    @property
    def contexts_file(self) -> Path:
        """The file with the contexts of the user."""
        from relevo.cli import contexts

        return contexts.file_of(self.environ)

    @cached_property
    def context(self) -> tuple[str, Context] | None:
        """The context that selects the database or host, with its name.

        An option that selects one replaces it. So does a variable, unless --context is given.
        """
        from relevo.cli import contexts

        direct = [name for name in ("url", "database", "schema", "home") if self.given.get(name)]
        named: str | None = self.given.get("context")
        if named and direct:
            raise click.UsageError(f"give either --context or --{direct[0]}, not both")
        if direct or (not named and any(self.environ.get(each) for each in DIRECT_VARIABLES)):
            return None
        saved = contexts.load(self.contexts_file)
        name = named or self.environ.get(contexts.VARIABLE) or saved.selected
        return (name, saved.named(name)) if name else None

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
            url = self.context[1].url if self.context else self.environ.get(URL_VARIABLE)
        return _checked_url(url) if url else None

    def key(self) -> str | None:
        """Return the access key for HTTP, or None; a key in a file is stripped of white space."""
        key = self.given.get("key") or self.environ.get(KEY_VARIABLE)
        file = self.environ.get(f"{KEY_VARIABLE}_FILE")
        if not key and not file and self.context:
            key, file = self.context[1].key, self.context[1].key_file
        if not key and file:
            try:
                key = Path(file).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(f"the file with the access key cannot be read: {error}") from (
                    None
                )
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise SettingsError(
                "the access key has invalid characters; check --key, RELEVO_KEY or the file"
                " named by RELEVO_KEY_FILE"
            )
        return key or None

    @property
    def authorities(self) -> Path | None:
        """The file with the CA certificates to trust; None for the system's."""
        named = self.given.get("ca") or self.environ.get(CA_VARIABLE)
        if not named and self.context:
            named = self.context[1].ca
        return Path(named) if named else None

    def choices(self) -> list[tuple[str, str | None, str]]:
        """Return what selects the database or host: setting, value and origin; no secrets."""
        from relevo.cli.choices import choices_of

        return choices_of(self)

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
