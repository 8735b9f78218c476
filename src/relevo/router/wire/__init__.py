"""The router's documents as callers send and get them. Pure."""
