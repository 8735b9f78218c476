"""Operations on actors, and the gateway of calls."""
