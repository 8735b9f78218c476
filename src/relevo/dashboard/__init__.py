"""The dashboard: pages for people, beside the API for programs.

    app.mount("/relevo", Dashboard(relevo_app))  # in Starlette or FastAPI

`relevo up` serves it at `/`.

**How to add a page**

A page that shows lists or facts is data: `list_page(…)` of `lists.py`, as in `pages/operating.py`,
with its headings in `catalogue/lists.*.toml`. For anything else:

1. Write `pages/<area>.py`: an `async def` loader that takes a `Visit` and returns the variables of
   the template, and `PAGES = (Page(name="hosts", path="/hosts", load=hosts, group="operate",
   operation="hosts.list"), ...)`. Add the module to the tuple in `pages/__init__.py`; the order
   there is the order of the navigation.
2. The loader gets its data from operations alone: `await visit.run("hosts.list", limit=100)`. So
   the roles of the API hold for pages, too, and the page gets "copy as CLI, curl, Python" from its
   calls. A figure that no operation has becomes an operation of its part.
3. Write `templates/<area>/<name>.html`, which extends `layout.html`. A block named `live_<x>` is
   sent again while the page is open, into the element with `id="live_<x>"`. Such a block may not
   use `csrf`: forms stand outside of it, and its buttons name them (`form="act"`). Macros are in
   `ui` (badges, times, bars, charts, empty pages); macros of one page stand inside its block.
4. Texts: `{{ t("hosts.title") }}`, in `catalogue/en.toml` and `catalogue/es.toml`; a test compares
   their keys. `<name>.title` is the page's name in the navigation.
5. A button that does something is an `Action(operation="hosts.drain", key="name")` in `ACTIONS` of
   the module, and `{{ ui.act("hosts.drain", host.name) }}` in the template. `POST /act` runs it
   through the table of operations. With `confirm=True` a page with a preview comes before.
"""

from __future__ import annotations

from relevo.dashboard.application import Dashboard

__all__ = ["Dashboard"]
