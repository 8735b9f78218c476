"""Measures peers on an embedded server and prints their figures."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import click

from bench.jobs_peers import HOW, PEERS, Unavailable, default_folder, measure
from relevo.kernel import telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

JOBS: Final = 20_000


@click.command()
@click.argument("peers", nargs=-1, type=click.Choice(sorted(PEERS)))
@click.option("--folder", type=click.Path(path_type=Path), help="Where peers are installed.")
@click.option("--jobs", default=JOBS, help=f"Jobs to drain. Default: {JOBS}.")
def main(peers: tuple[str, ...], folder: Path | None, jobs: int) -> None:
    """Measure PEERS, or all of them."""
    telemetry.configure_logs("json", "warning")
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as name:
        Path(name).chmod(0o755)  # so that the account of the embedded server may enter
        server = EmbeddedServer.join(Path(name) / "home")
        try:
            for peer in peers or PEERS:
                click.echo(f"{peer} ({', '.join(PEERS[peer].packages)})")
                click.echo(_figures(peer, server.url, folder or default_folder(), jobs))
        finally:
            server.leave()
    click.echo(HOW.strip())


def _figures(peer: str, url: str, folder: Path, jobs: int) -> str:
    try:
        found = asyncio.run(measure(peer, url, folder, jobs))
    except Unavailable as error:
        return f"  skipped: {error}"
    return "\n".join(f"  {name:<24}{value:>12,.3f}" for name, value in found.items())


if __name__ == "__main__":
    main()
