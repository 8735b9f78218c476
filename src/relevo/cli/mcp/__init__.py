"""`relevo mcp`: AI agents as workers, by the Model Context Protocol."""
