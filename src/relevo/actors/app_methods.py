"""`app.actor` and `app.stateless`: the actors' methods of `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from relevo.actors.actor import Actor
from relevo.actors.definitions import (
    ActorTypeOptions,
    StatelessTypeOptions,
    check_declaration,
    default_max_local,
)
from relevo.kernel import callables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relevo.actors.core.identity import Key
    from relevo.actors.definitions import RegisteringActor
    from relevo.actors.service import Actors

I = TypeVar("I")  # noqa: E741 - an interface


class ActorMethods:
    """Defines types of actors, and returns proxies."""

    actors: Actors

    @overload
    def actor(
        self,
        name_or_interface: str,
        *,
        implements: Callable[..., Any] | Sequence[Callable[..., Any]],
        **options: Unpack[ActorTypeOptions],
    ) -> RegisteringActor: ...

    @overload
    def actor(
        self, name_or_interface: Callable[..., I], key: Key, *, type: str | None = None
    ) -> I: ...

    def actor(
        self,
        name_or_interface: Any,
        key: Any = None,
        *,
        type: str | None = None,  # noqa: A002
        implements: Any = (),
        **options: Any,
    ) -> Any:
        """Define a type of actors, by a name; or return a proxy, by an interface and a key.

        `@app.actor("account", implements=Account)` makes the class below it a type; its actors
        are placed in `placement_group`, their state is stored unless `persist="volatile"`, and
        `schema` is its present number. Calls that come back to a waiting turn run nested in it,
        unless `reentrancy="none"`. Actors leave memory after `idle_after` seconds without use;
        `mailbox` calls may wait for one, and then the `overflow` ("newest" or "oldest") is refused.

        `app.actor(Account, "alice")` is a proxy: no I/O, and nothing is activated. `type` says
        which type is meant if several implement the interface.
        """
        _check_written(name_or_interface, key, "app.actor")
        if isinstance(name_or_interface, str):
            check_declaration(
                "app.actor", name_or_interface, implements, options, ActorTypeOptions
            )  # fmt: skip
            return self.actors.define(name_or_interface, implements=implements, **options)
        return self.actors.proxy(name_or_interface, key, type=type)

    @overload
    def stateless(
        self,
        name_or_interface: str,
        *,
        implements: Callable[..., Any] | Sequence[Callable[..., Any]],
        max_local: int | None = None,
        max_cluster: int | None = None,
        **options: Unpack[StatelessTypeOptions],
    ) -> RegisteringActor: ...

    @overload
    def stateless(
        self,
        name_or_interface: Callable[..., I],
        name: Key | None = None,
        *,
        type: str | None = None,
    ) -> I: ...

    def stateless(
        self,
        name_or_interface: Any,
        name: Any = None,
        *,
        type: str | None = None,  # noqa: A002
        implements: Any = (),
        max_local: int | None = None,
        max_cluster: int | None = None,
        **options: Any,
    ) -> Any:
        """Define a stateless type, by a name; or return a proxy, by an interface.

        `@app.stateless("resize", implements=Resizer, max_local=8)` makes the class below it a type
        without identity and stored state. A host that serves its `placement_group` makes another
        activation whenever a call finds none free, up to `max_local` (4 for each processor core,
        32 at most). Further calls wait in one queue with room for `mailbox` calls. `max_cluster`
        bounds the calls that run at once on all hosts, by the pool `stateless:NAME`.

        `app.stateless(Resizer)` is a proxy. Its calls run on this host if that serves the type,
        else on the less busy of two others picked at random. With a name, such as
        `app.stateless(Resizer, "large")`, they run in activations of that name only.
        """
        _check_written(name_or_interface, name, "app.stateless")
        if not isinstance(name_or_interface, str):
            return self.actors.stateless(name_or_interface, name, type=type)
        check_declaration(
            "app.stateless", name_or_interface, implements, options, StatelessTypeOptions
        )
        permit = None
        if max_cluster is not None:
            permit = self.actors.permit_of(f"stateless:{name_or_interface}", max_cluster)
        return self.actors.define(
            name_or_interface, implements=implements, permit=permit, persist="stateless",
            max_local=default_max_local() if max_local is None else max_local,
            max_cluster=max_cluster, **options,
        )  # fmt: skip


def _check_written(given: Any, key: Any, decorator: str) -> None:
    """Refuse a decorator without parentheses: it would look for proxies of the class below it."""
    if key is None and isinstance(given, type) and issubclass(given, Actor):
        callables.check_name(given, decorator)
