"""Operations on the output vocabulary of a model: transfer, initialization, expansion, casing and scale of the head."""
