"""The tree of commands as data: the nouns of `relevo --help`, and where each comes from.

A command imports only its own part: the operations of its noun, or the module it names. All parts
together take 0.4 s to import, which `relevo --help` does not spend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from relevo.kernel.command_words import words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from relevo.kernel.operation import Operation


class CommandNoun(Struct, frozen=True):
    """A first word after `relevo`: its help, and the modules that declare its operations."""

    help: str
    operations: tuple[str, ...] = ()


_JOBS: Final = tuple(f"relevo.jobs.http.{name}" for name in ("jobs", "matching", "views"))
_MESSAGES: Final = tuple(
    f"relevo.messaging.http.{name}" for name in ("messages", "locks", "moves", "sessions")
)
SECTIONS: Final[dict[str, dict[str, CommandNoun]]] = {
    "Start and operate": {
        "up": CommandNoun("Run one host: the API, and the work behind it."),
        "run": CommandNoun("Run a host for a program: its jobs, processors, consumers, actors."),
        "doctor": CommandNoun("Check the database, the clock, the data folder and the hosts."),
        "top": CommandNoun("Watch queues, lanes of jobs, feeds and the router at work."),
        "host": CommandNoun("Hosts: list, drain.", ("relevo.http.v1",)),
        "lease": CommandNoun("Leases, the work only one host may do: list, move.",
                             ("relevo.http.v1",)),
        "audit": CommandNoun("What operators and keys have changed: list.",
                             ("relevo.audit.http.entries",)),
        "key": CommandNoun("Access keys: create, list, revoke.", ("relevo.http.v1",)),
        "history": CommandNoun("Figures of all parts over time.",
                               ("relevo.history.http.figures",)),
        "system": CommandNoun("Health, metrics and the API's description.",
                              ("relevo.http.system", "relevo.http.operations")),
        "setting": CommandNoun("Settings in force, and where each comes from.",
                               ("relevo.http.system",)),
        "migrate": CommandNoun("Show the schema of the database, bring it up to date."),
        "backup": CommandNoun("Write the database to FILE, while hosts keep working."),
        "restore": CommandNoun("Fill an empty database from FILE, which `relevo backup` wrote."),
        "grants": CommandNoun("Print the SQL for the roles of Relevo."),
        "mcp": CommandNoun("Let an AI agent work: offers, jobs, explanations."),
        "context": CommandNoun("Contexts, names for databases and hosts: save, select, list."),
        "completion": CommandNoun("Print the completion script of a shell."),
    },
    "Events out": {
        "event": CommandNoun("The event log: show.", ("relevo.http.events",)),
        "webhook": CommandNoun(
            "Webhooks: create, list, pause, rotate, delivery.",
            ("relevo.webhooks.http.webhooks", "relevo.webhooks.http.deliveries"),
        ),
    },
    "Jobs": {
        "job": CommandNoun("System jobs: submit, list, explain, cancel.",
                           _JOBS),
        "batch": CommandNoun("Batches of jobs: create, show, wait, close, cancel.",
                             ("relevo.jobs.http.batches",)),
        "schedule": CommandNoun("Schedules of handlers: list, pause, resume, run.",
                                ("relevo.jobs.http.schedules",)),
        "lane": CommandNoun("Lanes of jobs and their counts.", ("relevo.jobs.http.views",)),
    },
    "Messages": {
        "queue": CommandNoun("Queues: create, send, receive.",
                             ("relevo.messaging.http.entities",)),
        "topic": CommandNoun("Topics: create, send.",
                             ("relevo.messaging.http.entities", *_MESSAGES)),
        "subscription": CommandNoun("Subscriptions of topics: create, receive.",
                                    ("relevo.messaging.http.entities", *_MESSAGES)),
        "rule": CommandNoun("Rules of subscriptions: create, list.",
                            ("relevo.messaging.http.rules",)),
        "message": CommandNoun("Messages of queues: send, peek, claim, complete.", _MESSAGES),
        "dead-letter": CommandNoun("Dead letters of queues: peek, redrive, purge.", _MESSAGES),
        "session": CommandNoun("Sessions of queues: list, accept.", _MESSAGES),
        "consumer": CommandNoun("Consumers of all hosts: pause, scale.",
                                ("relevo.messaging.http.consumers",)),
    },
    "Actors and scarce resources": {
        "actor": CommandNoun(
            "Virtual actors: call, list, watch.",
            tuple(f"relevo.actors.http.{name}" for name in (
                "actors", "calls", "reminders", "letters", "quarantine")),
        ),
        "pool": CommandNoun("Pools of permits: create, lease, resize.",
                            ("relevo.governance.http.pools",)),
        "limit": CommandNoun("Rate limits: create, acquire.", ("relevo.governance.http.limits",)),
        "resolver": CommandNoun("Resolvers of resources: create, resolve, move.",
                                ("relevo.governance.http.resolvers",)),
    },
    "Items and their changes": {
        "container": CommandNoun("Containers of items: create, list, split.",
                                 ("relevo.store.http.containers",)),
        "item": CommandNoun("Items: show, upsert, query.",
                            ("relevo.store.http.items", "relevo.store.http.bulk")),
        "feed": CommandNoun(
            "Change feeds: changes, lag, pause, rewind.",
            tuple(f"relevo.feed.http.{name}" for name in ("changes", "units", "administration")),
        ),
        "letter": CommandNoun("Dead letters of feeds: list, redrive.",
                              ("relevo.feed.http.dead_letters",)),
    },
    "Job router": {
        "router": CommandNoun(
            "The job router: job, worker, queue, offer, explain.",
            tuple(f"relevo.router.http.{name}" for name in (
                "policies", "jobs", "workers", "offers", "insight", "board")),
        ),
    },
    "Dataverse": {
        "dataverse": CommandNoun(
            "The Dataverse Web API, users, teams, business units, bulk deletes.",
            tuple(f"relevo.dataverse.http.{name}" for name in (
                "metadata", "rows", "changes", "bulk_actions", "messages", "bulk_deletes",
                "users")),
        ),
    },
}  # fmt: skip
NOUNS: Final = {name: noun for section in SECTIONS.values() for name, noun in section.items()}

COMMANDS: Final = {
    "up": "relevo.cli.hosts.up:up",
    "run": "relevo.cli.hosts.run:run",
    "top": "relevo.cli.top:top",
    "doctor": "relevo.cli.doctor.command:doctor",
    "migrate": "relevo.cli.migrate:migrate",
    "backup": "relevo.cli.backup:backup",
    "restore": "relevo.cli.backup:restore",
    "grants": "relevo.cli.grants:grants",
    "mcp": "relevo.cli.mcp.command:mcp",
    "context": "relevo.cli.context_commands:context",
    "completion": "relevo.cli.completion:completion",
    "feed lag": "relevo.feed.cli.commands:lag",
    "feed tail": "relevo.feed.cli.commands:tail",
    "feed run": "relevo.feed.cli.run:run",
    "job submit": "relevo.jobs.cli.commands:submit",
    "job show": "relevo.jobs.cli.commands:show",
    "job explain": "relevo.jobs.cli.explanations:explain",
    "job wait": "relevo.jobs.cli.commands:wait",
    "job retry": "relevo.jobs.cli.matching:retry",
    "job run-again": "relevo.jobs.cli.again:run_again",
    "job cancel-all": "relevo.jobs.cli.matching:cancel_all",
    "job pause-all": "relevo.jobs.cli.matching:pause_all",
    "job resume-all": "relevo.jobs.cli.matching:resume_all",
    "job postpone-all": "relevo.jobs.cli.matching:postpone_all",
    "job delete-all": "relevo.jobs.cli.matching:delete_all",
    "job view": "relevo.jobs.cli.commands:view",
    "job watch": "relevo.jobs.cli.commands:watch",
    "queue send": "relevo.messaging.cli.lines:send_to_queue",
    "queue receive": "relevo.messaging.cli.lines:receive_from_queue",
    "topic send": "relevo.messaging.cli.lines:send_to_topic",
    "subscription receive": "relevo.messaging.cli.lines:receive_from_subscription",
    "consumer autoscale": "relevo.messaging.cli.autoscale:autoscale",
    "dataverse bulk-delete create": "relevo.dataverse.cli.bulk_delete:create",
    "dataverse user show": "relevo.dataverse.cli.users:show",
    "actor schema": "relevo.actors.cli.schema:schema",
    "actor slots": "relevo.actors.cli.slots:slots",
    "actor watch": "relevo.actors.cli.watch:watch",
    "router classify": "relevo.router.cli.commands:classify",
    "router watch": "relevo.router.cli.commands:watch",
    "router work": "relevo.router.cli.desk:work",
    "router import": "relevo.router.cli.importing:take_over",
    "router explain job": "relevo.router.cli.commands:explain_job",
    "router explain worker": "relevo.router.cli.commands:explain_worker",
}
"""Commands made for people; they stand in for the generated ones of the same name."""


def imported(target: str) -> Any:
    """Return what `module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def operations_of(noun: str) -> Iterator[Operation]:
    """Return the operations of a noun, importing one module after the other."""
    for name in NOUNS[noun].operations:
        module = importlib.import_module(name)
        declared: Iterable[Operation] = vars(module).get("OPERATIONS") or module.operation
        yield from (each for each in declared if words_of(each.name)[0] == noun)


def operation(name: str) -> Operation:
    """Return the operation of a name, importing its part alone; raises `KeyError`."""
    for each in operations_of(words_of(name)[0]):
        if each.name == name:
            return each
    raise KeyError(name)
