"""Operations: what a run will cost, and what runs have left."""
