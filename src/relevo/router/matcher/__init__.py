"""The matcher: the loop on one host that matches jobs to workers."""
