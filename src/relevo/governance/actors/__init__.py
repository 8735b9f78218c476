"""The actors of the kit: a pool, a limit, a key of a writer or of a cache, a resolver."""
