"""The command line: `relevo up`, and a command for everything that can be asked of Relevo."""

from relevo.cli.root import main

__all__ = ["main"]
