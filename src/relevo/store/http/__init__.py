"""Operations on containers and items."""
