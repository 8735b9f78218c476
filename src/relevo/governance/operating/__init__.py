"""What operators and other programs do with pools, limits and resolvers."""
