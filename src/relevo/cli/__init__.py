"""The command line: `relevo up` and `relevo run`, and a command for every operation."""

from relevo.cli.root import main

__all__ = ["main"]
