"""Calls operations: in this process on the database, or over HTTP on a host."""
