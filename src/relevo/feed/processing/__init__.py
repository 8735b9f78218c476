"""Processors: a host's work on the leases of a feed, from reading to checkpoint."""
