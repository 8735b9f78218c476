"""Virtual actors: named, single-threaded units of state and behaviour."""

from relevo.actors.actor import Actor
from relevo.actors.calls.calling import headers
from relevo.actors.calls.filters import ActorCall
from relevo.actors.calls.ways import KIT_DEFINED_GROUP, KIT_GROUP
from relevo.actors.core.calls import Chain
from relevo.actors.core.identity import ActorRef, checked_key
from relevo.actors.definitions import NoState, Persist
from relevo.actors.events import ActorEvent, Event, Events, Gap
from relevo.actors.interfaces import Interface
from relevo.actors.markers import method, reminder_handler, timer, upgrade
from relevo.actors.operating.events import BY
from relevo.actors.reminders import Reminders, Tick
from relevo.actors.running.context import ActorContext
from relevo.actors.running.deferred import Deferred, Offloaded
from relevo.actors.running.memory.maps import ActorMap, StateManager
from relevo.actors.running.turn_filter import TurnFilter
from relevo.actors.service import Actors
from relevo.actors.states import DeactivationReason

__all__ = [
    "BY",
    "KIT_DEFINED_GROUP",
    "KIT_GROUP",
    "Actor",
    "ActorCall",
    "ActorContext",
    "ActorEvent",
    "ActorMap",
    "ActorRef",
    "Actors",
    "Chain",
    "DeactivationReason",
    "Deferred",
    "Event",
    "Events",
    "Gap",
    "Interface",
    "NoState",
    "Offloaded",
    "Persist",
    "Reminders",
    "StateManager",
    "Tick",
    "TurnFilter",
    "checked_key",
    "headers",
    "method",
    "reminder_handler",
    "timer",
    "upgrade",
]
