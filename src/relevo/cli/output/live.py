"""Views that are drawn again and again: in place on a terminal, one after the other elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from relevo.cli.output.render import Renderer


@contextmanager
def screen(renderer: Renderer, *, live: bool) -> Iterator[Callable[[RenderableType], None]]:
    """Return the printer of a view."""
    if live and renderer.output == "table" and renderer.console.is_terminal:
        screen = _Screen(renderer.console)
        try:
            yield screen.draw
        finally:
            screen.end()
    else:
        yield renderer.console.print


class _Screen:
    """A view in place; it begins anew when the terminal's size has changed.

    A terminal wraps the lines of the last view anew, so they cannot be found and replaced.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size = console.size
        self._live: Live | None = None

    def draw(self, view: RenderableType) -> None:
        """Replace the view."""
        if self._live is not None and self._size != self._console.size:
            self.end()
            self._console.clear()
        if self._live is None:
            self._size = self._console.size
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(view, refresh=True)

    def end(self) -> None:
        """Leave the last view on the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
