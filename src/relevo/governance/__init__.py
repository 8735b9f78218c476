"""Resource governance: who may use what is scarce, when, and how many at once."""
