"""`app.actors`: the types that an app defines, proxies, and the actors that are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import Struct

from relevo.actors.calls.calling import Calling
from relevo.actors.calls.message_proxies import MessageProxy, SendOptions
from relevo.actors.calls.proxies import Proxies
from relevo.actors.calls.subscriptions import EventStream
from relevo.actors.calls.ways import ActorWays
from relevo.actors.core.identity import ActorRef, Key, slot_of
from relevo.actors.definitions import ActorDefinition, ActorOptions, ActorTypes
from relevo.actors.interfaces import Interfaces
from relevo.actors.operating.administration import Administration, ref_of
from relevo.actors.operating.letters import Letters
from relevo.actors.operating.quarantine import Quarantine
from relevo.actors.operating.reminders import StoredReminders
from relevo.actors.running.receiver import CallReceiver
from relevo.actors.stateless.ways import StatelessHosts, StatelessWays
from relevo.actors.states import ActivationState
from relevo.actors.storing.storage import ActorStorage
from relevo.actors.transport.network import Network
from relevo.errors import Conflict, DatabaseUnavailable, InvalidValue, NotFound, TooLarge
from relevo.kernel.part import PerConnection, Service
from relevo.kernel.postgres import clock
from relevo.limits import ACTOR_FRAME_BYTES_MAX, ACTOR_SEND_ATTEMPTS, PAGE_ROWS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from datetime import datetime

    from relevo.actors.actor import Actor
    from relevo.actors.calls.filters import F, Filter
    from relevo.actors.calls.gateway import NamedMethod
    from relevo.actors.calls.proxies import CallOptions, ProxyBase
    from relevo.actors.core.deltas import OnDead, OutgoingMessage
    from relevo.actors.definitions import Permit
    from relevo.actors.events import Events
    from relevo.actors.operating.administration import ActorRecord, Named
    from relevo.actors.running.runtime import ActorRuntime
    from relevo.actors.signatures import MethodSpec
    from relevo.actors.storing.stored_actors import ListedActor
    from relevo.kernel.events import Catalogue
    from relevo.kernel.pages import Fetched
    from relevo.kernel.part import Connection
    from relevo.kernel.sealing import Vault
    from relevo.settings import Settings

I = TypeVar("I")  # noqa: E741 - an interface
STATELESS_NAME = "default"
"""Of the activations of a stateless type that are called without a name."""
A = TypeVar("A", bound="type[Actor[Any]]")


class ActivationInfo(Struct, frozen=True):
    """An actor in memory."""

    state: ActivationState
    epoch: int
    """Of the slot, when it was activated."""


async def _nothing_to_do(_group: str) -> None:
    pass


def _no_permits(pool: str, _size: int) -> Permit:
    raise Conflict(f"actors have no pools here, so that there is none named {pool!r}")


def _later(canonical: str, type_name: str) -> tuple[str, int]:
    """Leave the place of a message open until it is stored, since that may take a read."""
    return "", 0


class Actors(Service):
    """The actors of an app.

    >>> account = app.actor(Account, "alice")  # doctest: +SKIP
    >>> await account.deposit(500)  # doctest: +SKIP
    500
    """

    def __init__(
        self, connection: Connection, settings: Settings, vault: Vault, events: Catalogue
    ) -> None:
        super().__init__(connection)
        self.settings = settings
        self.types = ActorTypes(events)
        self.placement_groups = frozenset(settings.actors_placement_groups)
        """Those that this app serves while it is a host."""
        self._outgoing: list[Filter] = []
        self.interfaces = Interfaces(self._proxy_of, self._is_own)
        self._proxies = Proxies(self, self.interfaces.of)
        self.may_act: Callable[[], bool] = lambda: True
        """Whether commits of this process may be repeated; its host says."""
        self.when_unserved: Callable[[str], Awaitable[None]] = _nothing_to_do
        """Called with a placement group that no host has ever served, before a call is refused."""
        self.permit_of: Callable[[str, int], Permit] = _no_permits
        """The permits of a pool of some size, for types with a bound on all hosts; the app says."""
        self._storage = PerConnection(
            connection, lambda *opened: ActorStorage(*opened, may_act=lambda: self.may_act())
        )
        self.receiver = CallReceiver()
        self._network = PerConnection(
            connection,
            lambda database, wakeups: Network(
                database, wakeups, vault, settings, self.receiver, self._routes_changed
            ),
        )
        self._ways = PerConnection(
            connection,
            lambda *_: ActorWays(
                self.types, self.storage, settings, self.network,
                lambda group: self.when_unserved(group),
            ),
        )  # fmt: skip
        self._calling = PerConnection(connection, lambda *_: Calling(self.ways, self._outgoing))
        self._stateless_hosts = PerConnection(
            connection, lambda database, _: StatelessHosts(database, self.network)
        )
        self._stateless: dict[str, PerConnection[Calling]] = {}
        self._runtime: ActorRuntime | None = None
        self.calling_in_memory: Calling | None = None
        """Carries out calls without a host; `ActorTest` sets it."""
        self.administration = Administration(self)
        self.letters = Letters(self)
        """Messages and reminders that are not tried any more."""
        self.quarantine = Quarantine(self)
        """Actors whose stored state cannot be used."""
        self.reminders = StoredReminders(self)
        """Reminders of any actor, as operators see them."""

    @property
    def storage(self) -> ActorStorage:
        """The stored side of actors; raises `Conflict` before the app is connected."""
        return self._storage()

    @property
    def ways(self) -> ActorWays:
        """How calls reach their actors."""
        return self._ways()

    @property
    def network(self) -> Network:
        """The connections to other hosts."""
        return self._network()

    @property
    def runtime(self) -> ActorRuntime:
        """The actors in memory here; raises `Conflict` unless the app is a host."""
        if self._runtime is None:
            raise Conflict("this app is a client; actors run inside `async with app.host()`")
        return self._runtime

    @property
    def own_runtime(self) -> ActorRuntime | None:
        """The same; None if the app is no host of actors."""
        return self._runtime

    def serve_groups(self, names: Sequence[str] | None) -> None:
        """Serve these placement groups as a host; None are those of the settings."""
        if isinstance(names, str):
            raise InvalidValue(
                f"placement_groups is {names!r}; give a list of names", pointer="placement_groups"
            )
        given = self.settings.actors_placement_groups if names is None else names
        self.placement_groups = frozenset(given)

    def serve(self, runtime: ActorRuntime | None) -> None:
        """Let calls of actors that this host owns stay in this process."""
        self._runtime = runtime
        self.ways.runtime = self.receiver.runtime = runtime

    async def close_hosts(self) -> None:
        """Finish reading where stateless types are served."""
        await self._stateless_hosts().close()

    def _routes_changed(self, group: str) -> None:
        self.ways.note_change(group)

    def define(
        self,
        name: str,
        *,
        implements: Any,
        permit: Permit | None = None,
        **options: Any,
    ) -> Callable[[A], A]:
        """Make the class below the type of actors of a name; `App.actor` explains the options.

        With `persist="stateless"` it is a stateless type, as `App.stateless` explains; each of its
        calls runs under a permit, if that is given.
        """
        interfaces = (implements,) if isinstance(implements, type) else tuple(implements)

        def register(cls: A) -> A:
            self.types.add(
                ActorDefinition(
                    name,
                    cls,
                    interfaces,
                    ActorOptions(**options),
                    self.interfaces,
                    self.place,
                    permit,
                )
            )
            cls._service = self
            return cls

        return register

    def incoming(self, function: F) -> F:
        """Put a filter around all turns of this app's actors: `async def (call, proceed)`.

        It is around methods, messages, reminders and timers, inside of the turn. An error that it
        raises before `proceed()` refuses the call. The filter that was given first is outermost.
        """
        self.types.incoming.append(function)
        return function

    def outgoing(self, function: F) -> F:
        """Put a filter around all calls that this app's proxies make; it may add headers."""
        self._outgoing.append(function)
        return function

    def proxy(self, interface: Callable[..., I], key: Key, *, type: str | None = None) -> I:  # noqa: A002
        """Return a proxy of an actor; no I/O, and nothing is activated."""
        kind: Any = interface
        name = type if type is not None else self.types.of_interface(kind)
        definition = self.types.by_name.get(name)
        if definition is not None and definition.is_stateless:
            raise InvalidValue(
                f"{name!r} is stateless, and has no actors with keys; use app.stateless(…)",
                pointer="type",
            )
        return cast("I", self._proxies.make(kind, ActorRef.of(name, key)))

    def stateless(
        self,
        interface: Callable[..., I],
        name: Key | None = None,
        *,
        type: str | None = None,  # noqa: A002
    ) -> I:
        """Return a proxy of a stateless type; no I/O, and nothing is activated."""
        kind: Any = interface
        type_name = type or self.types.of_interface(kind, stateless=True)
        definition = self.types.by_name.get(type_name)
        if definition is not None and not definition.is_stateless:
            raise InvalidValue(
                f"{type_name!r} has actors with keys; use app.actor(…)", pointer="type"
            )
        ref = ActorRef.of(type_name, STATELESS_NAME if name is None else name)
        return cast("I", self._proxies.make(kind, ref))

    async def now(self) -> datetime:
        """Return the time by which Relevo decides."""
        return await clock.now(self.database)

    def place(self, canonical: str, type_name: str) -> tuple[str, int]:
        """Return where messages to an actor are stored: the placement group and the slot.

        Raises `NotFound`, or `InvalidValue` for a volatile type, which cannot store that it has
        handled them.
        """
        self._check_durable(type_name)
        definition = self.types.by_name.get(type_name)
        if definition is not None and self.calling_in_memory is not None:
            return definition.options.placement_group, 0
        group, slots = self.ways.slots_of_type(type_name)
        return group, slot_of(canonical, slots)

    def send(
        self, proxy: I, *, tx: Any = None, attempts: int = ACTOR_SEND_ATTEMPTS,
        on_dead: OnDead = "continue",
    ) -> I:  # fmt: skip
        """Return the proxy as one whose calls store messages that the actor handles later.

        With `tx` they are stored in a transaction of the caller: asyncpg, psycopg or SQLAlchemy.
        """

        ref = cast("ProxyBase", proxy).ref
        self._check_durable(ref.type)

        async def store(message: OutgoingMessage) -> None:
            await self.ways.slots(ref.type)  # read, if only other hosts define the type
            group, slot = self.place(message.receiver, ref.type)
            placed = msgspec.structs.replace(message, placement_group=group, slot=slot)
            await self.storage.sending.send([placed], tx=tx)

        options = SendOptions(attempts=attempts, on_dead=on_dead)
        return cast("I", MessageProxy(cast("ProxyBase", proxy), _later, options, store))

    def activations(self, actor: Named) -> Sequence[ActivationInfo]:
        """Return the activations of an actor in this process: one at most.

        Of a stateless type they may be many.
        """
        found = (
            [] if self._runtime is None else self._runtime.all_activations(ref_of(actor).canonical)
        )
        return [ActivationInfo(one.state, one.home.lease.epoch) for one in found]

    def _check_durable(self, type_name: str) -> None:
        definition = self.types.by_name.get(type_name)
        if definition is not None and not definition.is_durable:
            raise InvalidValue(
                f"{type_name!r} is {definition.options.persist} and handles no messages; call its"
                ' methods, or give it persist="durable"'
            )

    async def list(
        self, type_name: str, after: str = "", limit: int = PAGE_ROWS_DEFAULT
    ) -> Fetched[ListedActor]:
        """Return actors of a type that have stored data, beyond the canonical id `after`.

        It activates none.
        """
        return await self.administration.list(type_name, after, limit)

    async def get(self, actor: Named) -> ActorRecord | None:
        """Return what is stored of an actor, without its state; None if nothing is."""
        return await self.administration.get(actor)

    async def delete(self, actor: Named) -> None:
        """Remove an actor and all that is stored of it, as a turn of its own."""
        await self.administration.delete(actor)

    async def deactivate(self, actor: Named) -> bool:
        """Let an actor leave memory after its running turn; False if it was not in memory."""
        return await self.administration.deactivate(actor)

    async def move(self, actor: Named, *, to: str) -> None:
        """Ask for the slot of an actor, and all actors in it, to go to the host named `to`."""
        await self.administration.move(actor, to=to)

    async def owner(self, actor: Named) -> str | None:
        """Return the name of the host that owns the slot of an actor; None if no live host does."""
        found = await self.administration.owner(actor)
        return None if found is None else found.host

    def _proxy_of(self, interface: Any, canonical: str) -> Any:
        return self._proxies.make(interface, ActorRef.read(canonical))

    def _is_own(self, proxy: ProxyBase) -> bool:
        """Whether this app has made a proxy; the database of another may be another, too."""
        return proxy._caller is self or not isinstance(proxy._caller, Actors)

    def call(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, body: bytes, options: CallOptions
    ) -> Coroutine[Any, Any, Any]:
        """Carry out the call of a proxy; raises `TooLarge` for arguments that fit no frame."""
        if len(body) > ACTOR_FRAME_BYTES_MAX:
            raise TooLarge(
                f"the arguments of {method.name} have {len(body):,} bytes, and at most"
                f" {ACTOR_FRAME_BYTES_MAX:,} may be sent"
            )
        definition, calling = self.types.by_name.get(ref.type), self.calling_in_memory
        if calling is None:
            if definition is None or definition.is_stateless:
                return self._call_of_type(ref, method, body, options)
            calling = self._calling()
        return calling.call(ref, method, body, options)

    async def _call_of_type(
        self, ref: ActorRef, method: MethodSpec | NamedMethod, body: bytes, options: CallOptions
    ) -> Any:
        """Carry out the call of a stateless type, or of one that only other hosts define."""
        stateless = ref.type in self.types.by_name or await self._is_stateless(ref.type)
        calling = self._stateless_calling(ref.type) if stateless else self._calling()
        return await calling.call(ref, method, body, options)

    async def _is_stateless(self, type_name: str) -> bool:
        try:
            return await self.ways.is_stateless(type_name)
        except (NotFound, DatabaseUnavailable):
            return False  # the call says so, or waits

    def _stateless_calling(self, type_name: str) -> Calling:
        found = self._stateless.get(type_name)
        if found is None:
            found = self._stateless[type_name] = PerConnection(
                self.connection,
                lambda *_: Calling(
                    StatelessWays(type_name, self.types, self.ways, self._stateless_hosts()),
                    self._outgoing,
                ),
            )
        return found()

    def subscribe(self, ref: ActorRef, events: type[Events]) -> EventStream:
        """Return the events of an actor; nothing is asked for before the stream is entered."""
        return EventStream(self.ways, self.interfaces, ref, events)
