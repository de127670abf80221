"""Operations on the output vocabulary of a model: transfer, initialization, expansion and scale of the head."""
