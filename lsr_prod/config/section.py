"""Base class of the sections of a deployment."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Validated, immutable settings; an unknown key is an error.

    The string below a field is its description in ``--help`` and in the documentation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Join the lines of each description."""
        for field in cls.model_fields.values():
            if field.description is not None:
                field.description = " ".join(field.description.split())
