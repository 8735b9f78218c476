"""Operations on feeds."""
