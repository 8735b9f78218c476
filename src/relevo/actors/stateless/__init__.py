"""Stateless types: actors without identity, in as many activations as there is work for."""
