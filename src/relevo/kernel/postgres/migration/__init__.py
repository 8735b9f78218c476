"""Builds the schema from its files, and brings an older one up to date."""
