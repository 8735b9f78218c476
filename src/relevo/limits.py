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
HEADER_BYTES_MAX: Final = 32 * KIB
REQUESTS_IN_FLIGHT_MAX: Final = 1_000
REQUEST_SECONDS_MAX: Final = 60.0
REQUESTS_PER_SECOND_PER_KEY: Final = 5_000
REQUEST_BURST_PER_KEY: Final = 10_000
PAGE_ROWS_DEFAULT: Final = 100
PAGE_ROWS_MAX: Final = 500

# Keys
SIGNING_KEYS_MAX: Final = 8
SIGNATURE_SKEW_SECONDS: Final = 15 * 60.0
KEY_CACHE_SECONDS: Final = 5.0
KEY_NAME_LENGTH_MAX: Final = 100
KEY_SCOPES_MAX: Final = 20

# Names and labels
NAME_LENGTH_MAX: Final = 200
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 256

# Database
POOL_SIZE_DEFAULT: Final = 10
STATEMENT_SECONDS_MAX: Final = 60.0
CONNECT_SECONDS_MAX: Final = 10.0
ATTEMPTS_MAX: Final = 8
RETRY_SECONDS_MAX: Final = 30.0
GROUP_CALLS_MAX: Final = 500
GROUP_WAITING_MAX: Final = 20_000
WAKEUP_INTERVAL_SECONDS: Final = 0.02
WAKEUP_BYTES_MAX: Final = 7_000

# Leases
LEASES_PER_UNIT_MAX: Final = 100_000
LEASE_POSITION_BYTES_MAX: Final = 64 * KIB

# Items and feeds
ITEM_BYTES_MAX: Final = 1 * MIB
ITEM_ID_LENGTH_MAX: Final = 255
PARTITION_KEY_BYTES_MAX: Final = 1_024
RANGES_PER_CONTAINER: Final = 16
RANGES_PER_CONTAINER_MAX: Final = 1_024
BATCH_ITEMS_MAX: Final = 100
FEED_ITEMS_DEFAULT: Final = 100
FEED_ITEMS_MAX: Final = 10_000
FEED_BYTES_MAX: Final = 4 * MIB
FEED_WAIT_SECONDS_MAX: Final = 60.0
