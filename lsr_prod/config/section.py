"""Base class of the sections of a deployment, and types of settings that several sections have."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lsr_prod.storage.formats.values import TYPE_NAMES, AttributeType, is_type


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


def _unique_names(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("column names must be unique")
    return names


def _shares_of_terms(thresholds: list[float]) -> list[float]:
    for threshold in thresholds:
        if not 0 <= threshold <= 1:
            raise ValueError(f"{threshold} is not a share of the query terms; give values from 0 to 1")
    return thresholds


def _known_width(bits: int) -> int:
    if bits not in (4, 8, 16):
        raise ValueError("give 4, 8 or 16")
    return bits


Header = Annotated[list[str], Field(min_length=1), AfterValidator(_unique_names)]
"""Column names of files without a header row."""

Thresholds = Annotated[list[float], Field(min_length=1), AfterValidator(_shares_of_terms)]
"""Overlap thresholds: shares of the query terms, 0 to 1."""


def check_type(kind: str) -> str:
    """Refuse a type of a stored field that does not exist."""
    if not is_type(kind):
        raise ValueError(f"{kind} is no type; give {TYPE_NAMES}")
    return kind


FieldType = Annotated[AttributeType, AfterValidator(check_type)]
ImpactBits = Annotated[int, AfterValidator(_known_width)]
"""Bits per impact of a table."""
