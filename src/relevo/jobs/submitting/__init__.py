"""Submits: options are checked, handlers add what they declare, and the jobs are stored."""
