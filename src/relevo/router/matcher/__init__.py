"""The matcher: the loop that one host runs to decide who is offered what."""
