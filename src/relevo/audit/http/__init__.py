"""Operations of the audit."""
