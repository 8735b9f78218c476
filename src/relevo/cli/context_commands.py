"""`relevo context save`, `select`, `list`, `show` and `remove`: names for databases and hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import Struct

from relevo.cli import contexts
from relevo.cli.contexts import Context
from relevo.cli.options import DEBUG, OUTPUT, REMOTE, SELECTION, WHERE, CommandGroup
from relevo.cli.output.printing import note
from relevo.cli.output.render import Renderer
from relevo.errors import Conflict

if TYPE_CHECKING:
    from relevo.cli.session import Session

KEPT: Final = "kept with it"


class SavedContext(Struct, frozen=True, kw_only=True):
    """A context, without its secrets."""

    name: str
    selected: bool
    target: str
    key: str | None


class SavedContextList(Struct, frozen=True):
    """All contexts, by name."""

    items: list[SavedContext]


class Choice(Struct, frozen=True):
    """A value that commands use, and where it comes from."""

    setting: str
    value: str | None
    origin: str


class ChoiceList(Struct, frozen=True):
    """What commands use."""

    items: list[Choice]


context = CommandGroup("context", help="Contexts: save, select, list, show, remove.")


@context.leaf("save", shared=(*WHERE[:3], *REMOTE, *DEBUG))
@click.argument("name", metavar="NAME", help="A name of your choice.")
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the access key from this file when a command needs it, instead of keeping it.",
)
@click.option("--select", is_flag=True, help="Select it, too.")
@click.option("--force", is_flag=True, help="Replace a context of that name.")
@click.pass_obj
def save(session: Session, name: str, key_file: Path | None, select: bool, force: bool) -> None:
    """Save the host of --url, or the database of --database or --home, under a name.

    The file is in the user's config folder and private (mode 0600). It keeps --key and the
    password of --database; --key-file keeps only the path.
    """
    contexts.require_name(name)
    made = _context_of(session, key_file)
    file = session.contexts_file
    saved = contexts.load(file)
    if name in saved.contexts and not force:
        raise Conflict(f"there is a context {name!r}; choose another name, or add --force")
    selected = name if select else saved.selected
    changed = {**saved.contexts, name: made}
    contexts.store(file, contexts.SavedContexts(selected=selected, contexts=changed))
    note(f"saved {name}, {_target(made)}" + ("; it is selected" if selected == name else ""))


def _context_of(session: Session, key_file: Path | None) -> Context:
    given = {name: str(value) for name, value in session.given.items() if name != "debug"}
    local = {"database", "schema", "home"} & given.keys()
    if ("url" in given) == bool(local):
        raise click.UsageError("give either --url or --database, --schema and --home")
    if local and (key_file or {"key", "ca"} & given.keys()):
        raise click.UsageError("--key, --key-file and --ca are for a host; give its --url")
    if key_file and "key" in given:
        raise click.UsageError("give --key or --key-file, not both")
    for name in {"home", "ca"} & given.keys():
        given[name] = str(Path(given[name]).expanduser().absolute())
    kept = None if key_file is None else str(key_file.expanduser().absolute())
    return Context(key_file=kept, **given)


def _target(saved: Context) -> str:
    if saved.url:
        return saved.url
    if saved.database:
        from relevo.kernel.postgres.pool import address  # here, because most commands need none

        return f"PostgreSQL at {address.place(saved.database)}"
    return f"embedded PostgreSQL in {saved.home or '.relevo'}"


@context.leaf("select", shared=DEBUG)
@click.argument("name", required=False, metavar="[NAME]", help="The context; none without it.")
@click.pass_obj
def select(session: Session, name: str | None) -> None:
    """Let commands use a context from now on; without a name, none."""
    saved = contexts.load(session.contexts_file)
    if name is not None:
        saved.named(name)
    contexts.store(session.contexts_file, msgspec.structs.replace(saved, selected=name))
    note(f"selected {name}" if name else "no context is selected")


@context.leaf("list", shared=(*OUTPUT, *DEBUG))
@click.pass_obj
def list_all(session: Session) -> None:
    """List the contexts."""
    saved = contexts.load(session.contexts_file)
    items = [
        SavedContext(
            name=name, selected=name == saved.selected, target=_target(each), key=_key_of(each)
        )
        for name, each in sorted(saved.contexts.items())
    ]
    Renderer(session.output).result(SavedContextList(items))


def _key_of(saved: Context) -> str | None:
    return f"in {saved.key_file}" if saved.key_file else KEPT if saved.key else None


@context.leaf("show", shared=(*WHERE[:3], *REMOTE, *SELECTION, *OUTPUT, *DEBUG))
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.pass_obj
def show(session: Session, origin: bool) -> None:
    """Show the database or host that commands use with these options, in this environment."""
    chosen = [Choice(*each) for each in session.choices()]
    renderer = Renderer(session.output)
    plain = {each.setting: each.value for each in chosen}
    if origin:
        renderer.result(ChoiceList(chosen))
    elif session.output == "table":
        renderer.record(plain)
    else:
        renderer.data(plain)


@context.leaf("remove", shared=DEBUG)
@click.argument("name", metavar="NAME", help="The context.")
@click.pass_obj
def remove(session: Session, name: str) -> None:
    """Remove a context, with the key that it keeps."""
    saved = contexts.load(session.contexts_file)
    saved.named(name)
    left = {each: value for each, value in saved.contexts.items() if each != name}
    selected = None if saved.selected == name else saved.selected
    contexts.store(session.contexts_file, contexts.SavedContexts(selected=selected, contexts=left))
    note(f"removed {name}")
