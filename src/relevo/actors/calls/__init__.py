"""How a call finds its actor and comes back: proxies, routes, repeats, answers."""
