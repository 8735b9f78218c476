"""Consumers at work on a host: the ledger of messages for the shared runtime."""
