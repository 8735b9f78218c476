"""Operations of the governance kit."""
