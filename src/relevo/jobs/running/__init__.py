"""The host's side of jobs: claiming in batches, running handlers, settling what they came to."""
