"""Commands for the router."""
