"""Pure decisions about jobs: codes, operation types, outcomes, patches and series."""
