"""What decides in webhooks: filters, envelopes, signatures, retries. Pure."""
