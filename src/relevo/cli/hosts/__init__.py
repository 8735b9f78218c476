"""Runs hosts: `relevo up` and `relevo run`."""
