"""The configuration of the embedded PostgreSQL: settings, and allowed connections.

The reasons stand in docs/adr/0004-embedded-postgresql-settings.md. The files are written anew at
each start, so that a new version of Relevo brings its settings along; what `ALTER SYSTEM` sets wins
over them.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relevo.errors import SettingsError
from relevo.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLE: Final = "relevo"
PORT: Final = 5432
"""Only part of the socket's name: the server listens on no network."""

CONNECTIONS: Final = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "client_connection_check_interval": "5s",
    "idle_in_transaction_session_timeout": "5min",
}
DURABILITY: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "wal_compression": "pglz",
    "max_logical_replication_workers": "0",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
}
PLANNING: Final = {
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "random_page_cost": "1.1",
    "work_mem": "8MB",
}
VACUUM: Final = {
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_cost_delay": "1ms",
    "autovacuum_vacuum_cost_limit": "2000",
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_max_threshold": "50000",
    "autovacuum_vacuum_insert_scale_factor": "0.1",
    "autovacuum_analyze_scale_factor": "0.05",
}
LOGGING: Final = {
    "log_destination": "stderr",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "lc_messages": "C",
}
MEANING: Final = {
    "cluster_name": "relevo",
    "timezone": "UTC",
    "default_text_search_config": "pg_catalog.simple",
}

SHARED_BUFFERS_MIN: Final = 64 * MIB
SHARED_BUFFERS_MAX: Final = 1024 * MIB
CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

ACCESS_RULES: Final = """\
# Written by Relevo at each start. Only the accounts in pg_ident.conf come in.
local all         all peer map=relevo
local replication all peer map=relevo
"""


def server_settings(memory_bytes: int) -> dict[str, str]:
    """Every setting that differs from PostgreSQL's default, for a machine with `memory_bytes`."""
    buffers = min(max(memory_bytes // 8, SHARED_BUFFERS_MIN), SHARED_BUFFERS_MAX)
    memory = {
        "shared_buffers": f"{buffers // MIB}MB",
        "effective_cache_size": f"{max(memory_bytes // 2, buffers) // MIB}MB",
    }
    # On macOS an ordinary fsync leaves the data in the drive's cache, where a power cut finds it.
    platform = {"wal_sync_method": "fsync_writethrough"} if sys.platform == "darwin" else {}
    return CONNECTIONS | DURABILITY | PLANNING | VACUUM | LOGGING | MEANING | memory | platform


def machine_memory_bytes() -> int:
    """The memory that this process and the server share, within the limit of a container."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in CGROUP_LIMITS:
        try:
            memory = min(memory, int(path.read_text()))
        except (OSError, ValueError):
            continue  # not there, or "max"
    return memory


def configuration(settings: Mapping[str, str]) -> str:
    """`settings` as the text of a postgresql.conf."""
    lines = ["# Written by Relevo at each start; ALTER SYSTEM changes settings for good."]
    for name, text in settings.items():
        if not re.fullmatch(r"[a-z_][a-z0-9_.]*", name):
            raise SettingsError(
                f"{name!r} is not the name of a PostgreSQL setting; names are lower case letters,"
                " digits, '_' and '.'"
            )
        lines.append(f"{name} = {_quoted(text)}")
    return "\n".join(lines) + "\n"


def identity_map(account_name: str) -> str:
    """The pg_ident.conf for the server's own account, and for root, who can become it anyway."""
    names = dict.fromkeys((account_name, "root"))
    lines = [f'relevo "{name}" {ROLE}' for name in names]
    return "\n".join(["# Written by Relevo at each start.", *lines]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n")
    return f"'{escaped}'"
