"""Who asks and what they may: keys, signatures, tokens, roles and rates."""
