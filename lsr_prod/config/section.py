"""Base class of the sections of a deployment."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Validated, immutable settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
