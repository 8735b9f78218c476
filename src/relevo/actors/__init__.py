"""Virtual actors: named, single-threaded units of state and behaviour."""
