"""All settings of a Relevo process in one frozen struct.

Precedence: arguments over environment (`RELEVO_*`, secrets also as `RELEVO_*_FILE`) over the file
(`relevo.toml`, or the one named by `RELEVO_CONFIG`) over defaults. Unknown keys are refused with a
suggestion, so that a typo never silently means the default.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from relevo import limits
from relevo.errors import SettingsError
from relevo.kernel.networks import Networks
from relevo.kernel.outbound.addresses import Allowed
from relevo.kernel.postgres import binding
from relevo.kernel.telemetry.logs import Form, Level, get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "RELEVO_"
SECRETS = frozenset({"database_url", "access_key", "secret_key", "oidc_client_secret"})
_LISTS = frozenset({"public_hosts", "trusted_proxies", "outbound_allow", "actors_placement_groups"})
"""Settings with several values, separated by commas in the environment."""
_TYPO = 0.8
"""How alike an unknown variable and a known one must be to be taken for the same word."""
_NOT_SETTINGS = re.compile(
    r"(CONFIG|URL|KEY(_FILE)?|CA|COMPLETE|EXAMPLES|IMPORT_KEY|POSTGRES_ACCOUNT|FAULTS_.*"
    r"|TEST(ING)?_.*|(.*_)?SERVICE_.*|.*_(TCP|UDP|SCTP)(_.*)?)"
)
"""Of the command line, of other parts and of tests, and what Kubernetes sets for services named
relevo…."""
log = get_logger(__name__)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process was told; build it with `load` so that file and environment count."""

    home: Path = Path(".relevo")
    """Data folder: the embedded database, the master key."""
    database_url: str | None = None
    """A PostgreSQL 15 to 18 to use instead of the embedded one."""
    schema: str = binding.DEFAULT
    """Where in the database Relevo keeps everything; several in one database never meet."""
    pgbouncer: Literal["auto", "on", "off"] = "auto"
    """Whether the URL leads to PgBouncer in transaction mode; `auto` finds out by asking."""
    pool_size: int = limits.POOL_SIZE_DEFAULT
    query_seconds: float = limits.QUERY_SECONDS_MAX
    """How long the database may work on one query of a user before it is refused."""
    page_bytes: int = limits.PAGE_BYTES_MAX
    """How large a page of a list may be; it ends there, and says where the next one begins."""
    migrate: bool = True
    """Bring the schema up to date when connecting; otherwise only check it."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: Path | None = None
    """Certificate with its chain (PEM); with it the HTTP API is served over TLS, and only so."""
    tls_key: Path | None = None
    """Private key of the certificate (PEM, without a password)."""
    address: str | None = None
    """Where other hosts reach this one; default: what it listens on."""
    host_name: str | None = None
    """Unique name of this host; default: machine name, process id and a random part."""
    public_hosts: tuple[str, ...] = ()
    """Names clients may have signed as `Host`, for hosts behind a reverse proxy."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies whose `X-Forwarded-*` headers count."""
    signature_skew: float = limits.SIGNATURE_SKEW_SECONDS
    requests_per_second: float = limits.REQUESTS_PER_SECOND_PER_KEY
    drain_seconds: float = 30.0
    """How long a stopping host lets running work end."""
    oidc_issuer: str | None = None
    """URL of an OpenID Connect issuer whose tokens are accepted as bearer; needs `relevo[oidc]`."""
    oidc_audience: str = "relevo"
    """The audience that its tokens must name."""
    oidc_roles_claim: str = "roles"
    """The claim that names the roles; dots lead into objects, as in `realm_access.roles`."""
    oidc_client_id: str | None = None
    """What the dashboard is called at the issuer; with it, people sign in there. The address to
    register for redirects ends in `/sign-in/callback`."""
    oidc_client_secret: str | None = None
    """What the issuer wants from the dashboard besides, if it is no public client."""
    outbound_allow: tuple[str, ...] = ()
    """Hosts and networks that rules may call although their addresses are private or special."""

    router_deregister_on_expiry: bool = True
    """Whether a worker that lets an offer expire is taken for absent and deregistered."""
    router_unassign_max: int = 3
    """How often a router job may be taken back from workers; 0 means no limit."""
    router_worker_idle_days: float = 7.0
    """After how many days without a sign a worker is deregistered; 0 for never."""
    router_job_retention_days: float = 0.0
    """How many days ended router jobs are kept; 0 for ever."""
    router_strict_channels: bool = False
    """Whether router jobs and workers may only use channels that were defined."""
    jobs_crashes_max: int = 3
    """How many hosts a system job may lose before it fails, the last while it runs alone."""
    jobs_keep_succeeded_days: float = 30.0
    """How many days records of succeeded jobs are kept; 0 for ever."""
    jobs_keep_canceled_days: float = 30.0
    """How many days records of canceled jobs are kept; 0 for ever."""
    jobs_keep_failed_days: float = 90.0
    """How many days records of failed jobs are kept; 0 for ever."""
    jobs_brake_failures: int = 20
    """How often an extension may fail in `jobs_brake_minutes` before its jobs wait; 0: any."""
    jobs_brake_minutes: float = 5.0
    """Over how many minutes failures of an extension are counted."""
    jobs_strict_states: bool = False
    """Whether postponing a suspended job is refused."""
    jobs_strict_delete: bool = False
    """Whether only completed jobs can be deleted."""

    actors_listen: str | None = None
    """Where hosts take calls to actors from each other, as host:port; default: a Unix socket in
    `home`, which processes of one machine share."""
    actors_address: str | None = None
    """Where other hosts reach it, as host:port; default: `actors_listen`."""
    actors_placement_groups: tuple[str, ...] = ("default",)
    """Placement groups that this host serves."""
    actors_slots: int = limits.ACTOR_SLOTS
    """Slots of a placement group; fixed when the group is first served."""
    actors_activations_max: int = limits.ACTOR_ACTIVATIONS_MAX
    """How many actors a host keeps in memory; above it idle ones are deactivated first."""
    actors_memory_max: int = 0
    """Bytes of memory of a host's process (Linux only); above it, idle actors are deactivated at
    the next look, each 30 s, the longest unused first. 0 sets no limit."""
    actors_idle_seconds: float = limits.ACTOR_IDLE_SECONDS
    """How long an actor stays in memory without a call."""

    lease_expiration: float = 10.0
    lease_renew: float = 3.0
    lease_acquire: float = 5.0
    feed_target_lag: int = 1_000
    """How many pending changes one host is for, in the figure that autoscalers follow."""

    access_key: str | None = None
    """Presets the first access key (base64)."""
    secret_key: str | None = None
    """Master key that seals signing keys: base64 of 32 bytes, the same on all hosts."""

    log_format: Form = "auto"
    log_level: Level | None = None
    """What is logged. Default: `info` by `relevo up` and `relevo run`, `warning` elsewhere."""

    def __post_init__(self) -> None:
        if not binding.is_usable(self.schema):
            raise SettingsError(
                f"schema must be a name of its own, of up to {binding.NAME_MAX} lower-case letters,"
                f" digits and _, not {self.schema!r}; give one such as 'relevo' or 'shop_relevo'"
            )
        if not 1 <= self.pool_size <= 1_000:
            raise SettingsError(f"pool_size must be 1 to 1000, not {self.pool_size}")
        if not 0 <= self.port <= 65_535:
            raise SettingsError(f"port must be 0 to 65535, not {self.port}")
        if not limits.PAGE_BYTES_MIN <= self.page_bytes <= limits.PAGE_BYTES_MAX:
            raise SettingsError(
                f"page_bytes must be {limits.PAGE_BYTES_MIN} to {limits.PAGE_BYTES_MAX}, not"
                f" {self.page_bytes}"
            )
        for name in (
            "requests_per_second", "signature_skew", "drain_seconds", "feed_target_lag",
            "query_seconds", "actors_activations_max", "actors_idle_seconds",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.actors_memory_max < 0:
            raise SettingsError(
                f"actors_memory_max must be 0 (no limit) or more, not {self.actors_memory_max}"
            )
        if not 1 <= self.actors_slots <= limits.ACTOR_SLOTS_MAX:
            raise SettingsError(
                f"actors_slots must be 1 to {limits.ACTOR_SLOTS_MAX}, not {self.actors_slots}"
            )
        Allowed.parse(self.outbound_allow)
        Networks.parse("trusted_proxies", self.trusted_proxies)
        if (self.tls_cert is None) != (self.tls_key is None):
            given, lacking = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise SettingsError(f"{given} is set but {lacking} is not; TLS needs both")

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return self._shown()

    def _shown(self) -> list[tuple[str, Any]]:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, "…" if name in SECRETS and value else value) for name, value in values]


class _Source(Struct):
    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)


def load(
    arguments: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Return the settings in force; an argument of None means "not given".

    Raises `SettingsError` naming the key, where it was set, and the closest known one.
    """
    env = os.environ if environ is None else environ
    source = _Source()
    _add_file(source, file, env)
    _add_environment(source, env)
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    _add(source, given, "argument")
    return _convert(source)


def origins(
    settings: Settings, *, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> dict[str, str]:
    """Return where each setting in force comes from: its variable, its file, `default`, `argument`.

    File and environment are read again: what they no longer say counts as an argument.
    """
    env = os.environ if environ is None else environ
    source = _Source()
    try:
        _add_file(source, file, env)
        _add_environment(source, env)
        said = _convert(source)
    except SettingsError:
        source, said = _Source(), Settings()
    found = {}
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        same = name in source.origin and getattr(said, name) == value
        default = "default" if value == getattr(DEFAULTS, name) else "argument"
        found[name] = source.origin[name] if same else default
    return found


def _add_file(source: _Source, file: Path | None, env: Mapping[str, str]) -> None:
    named = file or (Path(env["RELEVO_CONFIG"]) if env.get("RELEVO_CONFIG") else None)
    path = named or Path("relevo.toml")
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            raise SettingsError(f"the settings file {path} does not exist") from None
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error}") from None
    _add(source, values, str(path))


def _add_environment(source: _Source, env: Mapping[str, str]) -> None:
    for name in Settings.__struct_fields__:
        variable = PREFIX + name.upper()
        if env.get(variable):
            value: Any = env[variable]
            if name == "port" and value.startswith("tcp://"):
                continue  # Kubernetes sets RELEVO_PORT like this for a service named relevo
            if name in _LISTS:
                value = tuple(part.strip() for part in value.split(",") if part.strip())
            _add(source, {name: value}, variable)
        elif name in SECRETS and env.get(f"{variable}_FILE"):
            _add(source, {name: _read_secret(f"{variable}_FILE", env)}, f"{variable}_FILE")
    _check_names(env)


def _check_names(env: Mapping[str, str]) -> None:
    """Refuse a variable whose name is almost that of a setting, and warn of other unknown ones.

    Others may use our prefix for their own ends.
    """
    known = {name.upper() for name in Settings.__struct_fields__}
    known |= {f"{name.upper()}_FILE" for name in SECRETS}
    for variable in sorted(env):
        name = variable.removeprefix(PREFIX)
        if name in known or name == variable or _NOT_SETTINGS.fullmatch(name):
            continue
        if env[variable].startswith("tcp://"):
            continue
        if close := difflib.get_close_matches(name, sorted(known), n=1, cutoff=_TYPO):
            raise SettingsError(
                f"unknown setting in the environment: {variable}; did you mean {PREFIX}{close[0]}?"
            )
        close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
        log.warning("settings.unknown_variable", variable=variable, nearest=PREFIX + close[0])


def _read_secret(variable: str, env: Mapping[str, str]) -> str:
    try:
        return Path(env[variable]).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{variable} names a file that cannot be read: {error}") from None


def _add(source: _Source, values: Mapping[str, Any], origin: str) -> None:
    for key, value in values.items():
        if key not in Settings.__struct_fields__:
            close = difflib.get_close_matches(key, Settings.__struct_fields__, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"unknown setting {key!r} ({origin}){hint}")
        source.values[key] = value
        source.origin[key] = origin


def _convert(source: _Source) -> Settings:
    plain = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in source.values.items()
    }
    try:
        return msgspec.convert(plain, Settings, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        text = str(error)
        named = re.search(r"\$\.(\w+)", text)
        key = named[1] if named and named[1] in source.origin else None
        where = f"setting {key!r} ({source.origin[key]}): " if key else ""
        raise SettingsError(f"{where}{text}") from None


def _decode(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)


DEFAULTS = Settings()
"""What holds where nothing is set."""
