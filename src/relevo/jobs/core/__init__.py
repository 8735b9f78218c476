"""What decides about jobs: codes, kinds, outcomes, patches and series. Pure."""
