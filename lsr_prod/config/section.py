"""What every section of a deployment shares."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """Settings that are checked once and never change; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
