"""Every bound of the product in one readable table.

A bound is a constant here, or a setting whose default stands here. Sizes are bytes, times seconds.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# HTTP
BODY_BYTES_MAX: Final = 1 * MIB
URL_BYTES_MAX: Final = 8 * KIB
HEADER_BYTES_MAX: Final = 64 * KIB
CONNECTIONS_MAX: Final = 10_000
CONNECTIONS_MIN: Final = 16
PROBE_CONNECTIONS_MAX: Final = 64
PROBE_CONNECTION_SECONDS_MAX: Final = 2.0
BACKLOG_MAX: Final = 1_024
DESCRIPTORS_KEPT: Final = 128
PIPELINED_REQUESTS_MAX: Final = 100
SEND_BUFFER_BYTES: Final = 256 * KIB
"""What the kernel takes of answers that a client has not read."""
UNSENT_SECONDS_MAX: Final = 30.0
UNSENT_BYTES_MIN: Final = 64 * KIB
UNSENT_BYTES_MAX: Final = 256 * MIB
REQUESTS_IN_FLIGHT_MAX: Final = 1_000
LONG_POLLS_MAX: Final = 1_000
HANDSHAKE_SECONDS_MAX: Final = 10.0
REQUEST_SECONDS_MAX: Final = 60.0
REQUESTS_PER_SECOND_PER_KEY: Final = 5_000
REQUEST_BURST_PER_KEY: Final = 10_000
STREAMS_MAX: Final = 1_000
DASHBOARD_REQUESTS_MAX: Final = 100
DASHBOARD_STREAMS_MAX: Final = 500
FORM_BYTES_MAX: Final = 256 * KIB
FORM_FIELDS_MAX: Final = 2_000
SELECTED_MAX: Final = 500
"""Things that one form of the dashboard acts on."""
MATCHING_SECONDS_MAX: Final = 20.0
"""How long an action of the dashboard works on all that match, before it says how far it came."""
"""Things that an action on all that match acts on at once."""
NOTICE_LENGTH_MAX: Final = 500
SIGN_INS_PER_SECOND: Final = 1.0
SIGN_IN_BURST: Final = 30.0
STREAM_SECONDS_MAX: Final = 15 * 60.0
PAGE_ROWS_DEFAULT: Final = 100
PAGE_ROWS_MAX: Final = 500
PAGE_BYTES_MAX: Final = 4 * MIB
PAGE_BYTES_MIN: Final = 1 * KIB

# CPU time
CPU_THREADS_MAX: Final = 2
"""Threads of a process for work that would hold up its event loop."""
PARSED_ON_LOOP_BYTES_MAX: Final = 1 * KIB
"""Longer expressions and queries are parsed in such a thread; 1 KiB takes about 10 ms."""
DECODED_ON_LOOP_BYTES_MAX: Final = 64 * KIB
"""Longer JSON documents are decoded and checked in such a thread."""

# Keys
SIGNING_KEYS_MAX: Final = 8
SIGNATURE_SKEW_SECONDS: Final = 15 * 60.0
SIGNATURES_REMEMBERED_MAX: Final = 200_000
KEY_CACHE_SECONDS: Final = 5.0
KEY_NAME_LENGTH_MAX: Final = 100
KEY_SCOPES_MAX: Final = 20

# Instants
YEAR_MAX: Final = 9_998
"""The last year but one of the calendar: every day has one after it, in every zone."""

# Names and labels
NAME_LENGTH_MAX: Final = 200
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 256

# Expressions
EXPRESSION_BYTES_MAX: Final = 8 * KIB
EXPRESSION_DEPTH_MAX: Final = 64
EXPRESSION_STEPS_MAX: Final = 10_000
"""What one evaluation may cost. A step is at most about a microsecond: a node, an item of a list,
64 characters of a text that is read or made, 1,024 that are compared in a search."""
EXPRESSION_POLICY_BYTES_MAX: Final = 64 * KIB
"""All expressions of one policy together."""

# SQL filters and actions
FILTER_LENGTH_MAX: Final = 1_024
"""Characters."""
FILTER_LENGTH_LARGEST: Final = 16_384
"""What an installation may allow instead."""
FILTER_LIST_MAX: Final = 256
ACTION_LENGTH_MAX: Final = 1_024
ACTION_STATEMENTS_MAX: Final = 32

# Queries
QUERY_URL_BYTES_MAX: Final = 32 * KIB
QUERY_BODY_BYTES_MAX: Final = 16 * MIB
QUERY_TARGETS_MAX: Final = 1_000
QUERY_ROWS_MAX: Final = 5_000
QUERY_COUNT_MAX: Final = 5_000
QUERY_AGGREGATE_ROWS_MAX: Final = 50_000
QUERY_CONDITIONS_MAX: Final = 500
QUERY_DEPTH_MAX: Final = 50
QUERY_LIST_MAX: Final = 2_000
QUERY_VALUES_MAX: Final = 20_000
"""Values of all lists of one query together, each counted as often as an alias repeats it."""
QUERY_ORDERS_MAX: Final = 10
QUERY_EXPANDS_MAX: Final = 15
QUERY_EXPAND_DEPTH_MAX: Final = 2
QUERY_SORT_LENGTH_MAX: Final = 256
QUERY_SECONDS_MAX: Final = 10.0
QUERY_TEMPORARY_BYTES_MAX: Final = 256 * MIB

# Database
POOL_SIZE_DEFAULT: Final = 10
POOL_WAIT_SECONDS_MAX: Final = 30.0
POOL_WAIT_HANDLERS_SECONDS_MAX: Final = 600.0
HANDLERS_PER_CONNECTION_WARN: Final = 8
STATEMENT_SECONDS_MAX: Final = 60.0
CONNECT_SECONDS_MAX: Final = 10.0
ATTEMPTS_MAX: Final = 8
RETRY_SECONDS_MAX: Final = 30.0
GROUP_CALLS_MAX: Final = 500
GROUP_WAITING_MAX: Final = 20_000
WAKEUP_INTERVAL_SECONDS: Final = 0.01
WAKEUP_BURST: Final = 20
WAKEUP_BYTES_MAX: Final = 7_000

# Calls to the outside
OUTBOUND_SECONDS_MAX: Final = 10.0
OUTBOUND_ATTEMPTS_MAX: Final = 2
OUTBOUND_ANSWER_BYTES_MAX: Final = 1 * MIB
OUTBOUND_CONNECTIONS_MAX: Final = 100
OUTBOUND_CONNECTIONS_PER_HOST_MAX: Final = 20
OUTBOUND_TOKENS_MAX: Final = 1_000

# Audit
AUDIT_SECONDS: Final = 400 * 24 * 3_600.0
"""How long entries are kept."""
AUDIT_REASON_LENGTH_MAX: Final = 500
AUDIT_RESOURCE_LENGTH_MAX: Final = 1_000

# Requests with an Idempotency-Key
IDEMPOTENCY_SECONDS: Final = 24 * 3_600.0
"""How long a request and its answer are kept."""
IDEMPOTENCY_KEY_LENGTH_MAX: Final = 256
IDEMPOTENCY_ANSWER_BYTES_MAX: Final = 64 * KIB
"""A larger answer is not kept; its repeats are told so."""
IDEMPOTENCY_RUNNING_SECONDS: Final = 90.0
"""A request that has run for so long without an end was broken off."""

# Webhooks
WEBHOOKS_MAX: Final = 200
WEBHOOK_NAME_LENGTH_MAX: Final = 64
WEBHOOK_TYPES_MAX: Final = 50
WEBHOOK_SECRETS_MAX: Final = 5
"""Secrets that sign at once, while one replaces another."""
WEBHOOK_SECRET_BYTES_MIN: Final = 24
WEBHOOK_SECRET_BYTES_MAX: Final = 64
WEBHOOK_OVERLAP_SECONDS_DEFAULT: Final = 24 * 3_600.0
"""How long a replaced secret signs beside the new one."""
WEBHOOK_OVERLAP_SECONDS_MAX: Final = 30 * 24 * 3_600.0
WEBHOOK_ATTEMPTS_MAX: Final = 20
WEBHOOK_WAIT_SECONDS_MAX: Final = 24 * 3_600.0
"""The longest wait between two attempts, also if the receiver asks for more."""
WEBHOOK_SECONDS_MAX: Final = 15.0
"""How long a receiver may take to answer."""
WEBHOOK_CONCURRENCY: Final = 4
"""Requests to one receiver at a time; those of one subject follow each other."""
WEBHOOK_BATCH_MAX: Final = 100
"""Events that a sender takes from the database at once."""
WEBHOOK_PENDING_MAX: Final = 100_000
"""Waiting and dead events of a webhook; with more it is disabled."""
WEBHOOK_FAILING_SECONDS_MAX: Final = 5 * 24 * 3_600.0
"""After so long without a success a webhook is disabled."""
WEBHOOK_VALIDATION_SECONDS_MAX: Final = 600.0
WEBHOOK_DELIVERED_SECONDS: Final = 24 * 3_600.0
"""How long a delivered event is kept, to be looked at and sent again."""
WEBHOOK_DEAD_SECONDS: Final = 30 * 24 * 3_600.0
WEBHOOK_REASON_LENGTH_MAX: Final = 200

# Leases
LEASES_PER_UNIT_MAX: Final = 100_000
LEASE_POSITION_BYTES_MAX: Final = 64 * KIB
WRITE_PROBE_SECONDS: Final = 5.0

# Items and feeds
ITEM_BYTES_MAX: Final = 1 * MIB
ITEM_ID_LENGTH_MAX: Final = 255
ITEM_DEPTH_MAX: Final = 128
ITEM_KEY_BYTES_MAX: Final = 2_400
ITEM_WAITERS_MAX: Final = 2
ITEM_WAIT_SECONDS_MAX: Final = 30.0
PARTITION_KEY_BYTES_MAX: Final = 2 * KIB
RANGES_PER_CONTAINER: Final = 16
RANGES_PER_CONTAINER_MAX: Final = 1_024
BATCH_ITEMS_MAX: Final = 100
FEED_ITEMS_DEFAULT: Final = 100
FEED_ITEMS_MAX: Final = 10_000
FEED_BYTES_MAX: Final = 4 * MIB
FEED_WAIT_SECONDS_MAX: Final = 60.0
FEED_PREFETCH_MAX: Final = 100
FEED_LANES_MAX: Final = 256
FEED_LANE_WINDOW: Final = 1_000
FEED_DONE_MAX: Final = 100_000

# System jobs
JOB_RETRIES_MAX: Final = 10_000
JOB_UNSERVED_SECONDS_MAX: Final = 600.0
JOB_UNIQUE_SECONDS_MAX: Final = 366 * 86_400.0
JOBS_SUBMITTED_MAX: Final = 1_000
"""Jobs of one request over HTTP."""
JOBS_COMMANDED_MAX: Final = 5_000
"""Jobs that one request over HTTP commands; the next request goes on."""
JOB_DEFER_SECONDS_MIN: Final = 5.0
JOB_BRAKE_WAIT_SECONDS_MAX: Final = 10.0
JOB_ALONE_WAIT_SECONDS_MAX: Final = 10.0
JOB_ALONE_SECONDS_MAX: Final = 120.0
JOB_ALONE_RETRY_SECONDS: Final = 60.0
JOB_CRASHES_UNPROVEN_FACTOR: Final = 10

# Recurrence
RECURRENCE_STEPS_MAX: Final = 100_000
"""The search for the next instant. A step is at most about a microsecond: a month or a day that is
looked at, or a time on it."""
RECURRENCE_WALK_STEPS_MAX: Final = 1_000_000
"""The way from one instant to another where those between have to be counted, because of COUNT."""

# Job router
ROUTER_ID_LENGTH_MAX: Final = 256
ROUTER_TEXT_LENGTH_MAX: Final = 4_096
ROUTER_NOTE_LENGTH_MAX: Final = 16_384
ROUTER_URI_LENGTH_MAX: Final = 2_048
ROUTER_DOCUMENT_DEPTH_MAX: Final = 32
ROUTER_DOCUMENT_VALUES_MAX: Final = 10_000
"""JSON values in one change of a job or a worker."""
ROUTER_LABELS_MAX: Final = 200
ROUTER_LABEL_KEY_LENGTH_MAX: Final = 256
ROUTER_LABEL_TEXT_LENGTH_MAX: Final = 4_096
ROUTER_LABELS_BYTES_MAX: Final = 64 * KIB
ROUTER_SELECTORS_MAX: Final = 100
ROUTER_NOTES_MAX: Final = 1_000
ROUTER_RULES_MAX: Final = 100
ROUTER_ATTACHMENTS_MAX: Final = 100
ROUTER_QUEUES_PER_WORKER_MAX: Final = 1_000
ROUTER_CHANNELS_PER_WORKER_MAX: Final = 100
ROUTER_CONCURRENT_OFFERS_MAX: Final = 1_000
ROUTER_SCORING_BATCH: Final = 20
ROUTER_SCORING_BATCH_MAX: Final = 1_000
ROUTER_PRIORITY_MIN: Final = -100
ROUTER_PRIORITY_MAX: Final = 100
ROUTER_PRIORITY_DEFAULT: Final = 1
ROUTER_COUNT_MAX: Final = 2**31 - 1
ROUTER_SECONDS_MAX: Final = 100 * 366 * 86_400.0
ROUTER_UNASSIGN_MAX: Final = 3
ROUTER_CALLS_AT_ONCE_MAX: Final = 16
ROUTER_CALLS_SECONDS_MAX: Final = 30.0
ROUTER_PAGE_ROWS_MAX: Final = 1_000

# Messaging
MESSAGE_ENTITIES_MAX: Final = 10_000
MESSAGE_SUBSCRIPTIONS_MAX: Final = 2_000
"""Of one topic."""
MESSAGE_SQL_RULES_MAX: Final = 2_000
"""Of one topic, all subscriptions together; so is the next."""
MESSAGE_CORRELATION_RULES_MAX: Final = 100_000
MESSAGE_ENTITY_NAME_LENGTH_MAX: Final = 260
"""Of queues and topics; subscriptions and rules have the next."""
MESSAGE_RULE_NAME_LENGTH_MAX: Final = 50
MESSAGE_METADATA_LENGTH_MAX: Final = 1_024
MESSAGE_ENTITY_BYTES_DEFAULT: Final = 1_024 * MIB
MESSAGE_ENTITY_BYTES_MIN: Final = 1 * MIB
MESSAGE_BYTES_DEFAULT: Final = 256 * KIB
MESSAGE_BYTES_MAX: Final = 100 * MIB
MESSAGE_BATCH_BYTES_MAX: Final = 1 * MIB
MESSAGE_HEADERS_BYTES_MAX: Final = 64 * KIB
"""All properties and texts of a message together."""
MESSAGE_PROPERTY_BYTES_MAX: Final = 32 * KIB
MESSAGE_ID_LENGTH_MAX: Final = 128
MESSAGE_REASON_LENGTH_MAX: Final = 4_096
"""Of the reason and of the description with which a message is dead-lettered."""
MESSAGE_CHECKPOINT_BYTES_MAX: Final = 256 * KIB
MESSAGE_SESSION_STATE_BYTES_MAX: Final = 256 * KIB
MESSAGE_LOCK_SECONDS_MIN: Final = 1.0
MESSAGE_LOCK_SECONDS_MAX: Final = 12 * 3_600.0
MESSAGE_DELIVERIES_MAX: Final = 2**31 - 1
MESSAGE_TTL_SECONDS_MIN: Final = 1.0
MESSAGE_DEAD_LETTER_TTL_SECONDS_MIN: Final = 60.0
MESSAGE_IDLE_SECONDS_MIN: Final = 300.0
MESSAGE_DUPLICATE_SECONDS_MIN: Final = 20.0
MESSAGE_DUPLICATE_SECONDS_MAX: Final = 7 * 86_400.0
MESSAGE_SECONDS_MAX: Final = 100 * 366 * 86_400.0
"""The longest of all other times that an entity can be told."""
MESSAGE_SETTLED_SECONDS: Final = 60.0
"""For so long a repeated settlement is answered with the success of the first."""
MESSAGE_PRIORITY_MAX: Final = 9
MESSAGE_CLASSES_MAX: Final = 16
MESSAGE_WEIGHT_MAX: Final = 1_000
MESSAGE_FORWARD_HOPS_MAX: Final = 4
MESSAGE_RECEIVED_MAX: Final = 4_000
"""Messages that one receive returns, or one `delete_batch` deletes."""
MESSAGE_RECEIVERS_MAX: Final = 5_000
"""Receivers that wait at one entity."""
MESSAGE_FAIRNESS_KEYS_MAX: Final = 100_000
"""Of one entity, remembered at a time; one that two classes use counts twice."""
MESSAGE_TRANSACTION_OPERATIONS_MAX: Final = 100
"""Sends and settlements that join one transaction; a call that sends many messages is one."""
MESSAGE_RERANK_SECONDS_MAX: Final = 3_600.0
"""What another ordering of an entity may take; a million waiting messages take about 40 s."""
MESSAGE_HOURS_WINDOWS_MAX: Final = 24

# Actors
ACTOR_KEY_BYTES_MAX: Final = 256
ACTOR_SLOTS: Final = 256
"""Of a placement group, unless it is joined with another number."""
ACTOR_KIT_SLOTS: Final = 16
"""Slots of each of Relevo's own placement groups."""
ACTOR_SLOTS_MAX: Final = 4_096
"""Of all placement groups of a database: each may hold one lock of PostgreSQL's lock table."""
ACTOR_STATE_BYTES_MAX: Final = 4 * MIB
ACTOR_STATE_BYTES_WARN: Final = 256 * KIB
ACTOR_MAILBOX_CALLS: Final = 1_000
ACTOR_STATELESS_PER_CORE: Final = 4
"""Activations of a stateless type on a host for each processor core, unless it says otherwise."""
ACTOR_STATELESS_MAX: Final = 32
"""The same, however many cores there are."""
ACTOR_HOST_CALLS_MAX: Final = 100_000
"""Calls that wait in all mailboxes of a host."""
ACTOR_HOST_BYTES_MAX: Final = 256 * MIB
"""Arguments of the calls that a host has taken in and not answered."""
ACTOR_DEFERRED_MAX: Final = 100_000
"""Deferred answers pending of one actor."""
ACTOR_ACTIVATIONS_MAX: Final = 50_000
"""Activations of a host; above it idle ones go first."""
ACTOR_IDLE_SECONDS: Final = 900.0
ACTOR_IDLE_SCAN_SECONDS: Final = 30.0
ACTOR_CALL_SECONDS: Final = 30.0
ACTOR_TURN_SECONDS: Final = 60.0
ACTOR_ABORT_SECONDS: Final = 10.0
"""How long code may swallow a cancellation before its activation is aborted."""
ACTOR_CHAIN_DEPTH_MAX: Final = 32
ACTOR_PROBE_SECONDS: Final = 1.0
"""How long a call waits for a turn before it looks for a deadlock."""
ACTOR_CALL_ID_HOURS: Final = 24.0
ACTOR_CALL_ID_LENGTH_MAX: Final = 256
LIMIT_ID_LENGTH_MAX: Final = 256
"""Characters of the id of a cost that a limit charges once."""
LIMIT_IDS_MAX: Final = 100_000
"""Such ids that a limit takes in ten minutes."""
ACTOR_SEND_ATTEMPTS: Final = 20
ACTOR_REMINDER_SECONDS_MIN: Final = 1.0
ACTOR_MISSED_MAX: Final = 100
"""Missed occurrences of a reminder that `missed="all"` makes up for."""
ACTOR_HEADERS_BYTES_MAX: Final = 4 * KIB
ACTOR_FRAME_BYTES_MAX: Final = 16 * MIB
ACTOR_HELLO_BYTES_MAX: Final = 8 * KIB
"""Of a frame, until a peer has proved that it belongs to the installation."""
ACTOR_NAME_LENGTH_MAX: Final = 512
"""Characters of an actor's canonical text, or of a method's name, in a frame."""
ACTOR_CHAIN_FRAMES_MAX: Final = 256
"""Turns that wait in the chain of a call that travels."""
ACTOR_HANDSHAKE_SECONDS: Final = 5.0
"""How long connecting to a host may take."""
ACTOR_PING_SECONDS: Final = 5.0
"""How long a connection may be silent before a host asks for a sign."""
ACTOR_SILENCE_SECONDS: Final = 15.0
"""How long a connection may be silent before it is closed."""
ACTOR_BACKLOG_BYTES_MAX: Final = 256 * MIB
"""Answers and events that wait for a peer that does not read; beyond, its connection is closed."""
ACTOR_CONNECTIONS_MAX: Final = 1_000
"""Connections of processes to a host."""
ACTOR_SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions to actor events of one connection."""
ACTOR_WINDOW_CALLS: Final = 1_000
ACTOR_WINDOW_BYTES: Final = 16 * MIB
"""What a peer may send before it is given more credit."""
ACTOR_SUBSCRIBER_EVENTS_MAX: Final = 1_000
ACTOR_SUBSCRIPTION_SECONDS: Final = 30.0
ACTOR_LANES: Final = 4
ACTOR_DELTAS_MAX: Final = 5_000
"""Turns that one statement commits."""
ACTOR_POISON_CRASHES: Final = 2
"""Hosts in a row that a call may kill before it is refused."""
ACTOR_DUE_CRASHES: Final = 2
"""Hosts in a row that a durable message or a reminder may kill, after the first one, before it is
a dead letter."""
