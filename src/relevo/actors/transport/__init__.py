"""Calls between processes: one multiplexed connection per pair, proved by the master key."""
