"""Operations of the router."""
