"""Generates a command for every operation, with options from the fields of its request."""
