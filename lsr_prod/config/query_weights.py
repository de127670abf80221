"""Settings of learned query weights."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.section import Section


class QueryWeightsSettings(Section):
    """Training of the weights of query terms, for models with query_encoder learned."""

    initialization: Literal["idf", "ones"] = Field(
        "idf",
        description="weights that training starts from: inverse document frequencies of idf_corpus or of the documents "
        "of data, or 1 for every term; a model with trained weights continues with them",
    )
    learning_rate_factor: float = Field(
        100.0,
        gt=0,
        allow_inf_nan=False,
        description="learning rate of the weights, as a multiple of optimizer.learning_rate: a weight is a number of "
        "about 1 to 10, and a step of AdamW changes it by about the learning rate",
    )
