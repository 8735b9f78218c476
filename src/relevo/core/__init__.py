"""Pure helpers: no I/O, no clock, no randomness of their own."""
