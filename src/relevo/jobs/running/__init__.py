"""The host's side of jobs: claims in batches, runs handlers, settles the outcomes."""
