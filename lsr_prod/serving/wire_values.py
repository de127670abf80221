"""Values of requests from clients: validation of their form, in one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filter_json import filter_from_json
from lsr_prod.search.query.filters import Filter, shorten
from lsr_prod.search.query.request import Hybrid


class WireValue(BaseModel):
    """A request of a client. Only its form is validated here; the search validates the values."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @classmethod
    def read(cls, value: Any) -> Self:
        """Validate the form of a request."""
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise QueryError(f"the request is {shorten(value)}; give an object with text or vector")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise QueryError(_sentence(error, ", ".join(cls.model_fields))) from None


def read_filter(value: Any) -> Filter | None:
    """Read a filter; None: none."""
    return None if value is None else filter_from_json(value)


def read_hybrid(value: Any) -> Hybrid | None:
    """Read ``Hybrid`` from an object with some of its attributes; None: none."""
    if value is None:
        return None
    known = [field.name for field in fields(Hybrid)]
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        raise QueryError(f"hybrid={shorten(value)} is not possible; give an object with some of: {', '.join(known)}")
    return Hybrid(**value)


def read_vector(value: Any) -> dict[Any, Any]:
    """Read a vector from an object, or from a list of pairs, where a term may be an id."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise QueryError(f"vector is {shorten(value)}; give a list of pairs, or an object")
    vector: dict[Any, Any] = {}
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int):
            raise QueryError("the vector has an entry that is no pair of term and weight; give [term, weight]")
        if pair[0] in vector:
            raise QueryError(f"term {shorten(pair[0])} is given twice; give it once")
        vector[pair[0]] = pair[1]
    return vector


def _sentence(error: ValidationError, known: str) -> str:
    """Return the first problem as one sentence with field, value and remedy."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, QueryError):
        return str(cause)
    name, value = ".".join(map(str, first["loc"])), shorten(first["input"])
    match first["type"]:
        case "extra_forbidden":
            return f"the request has {shorten(name)}, which is unknown; give some of: {known}"
        case "missing":
            return f"the request has no {name}; give it"
        case "list_type":
            return f"{name} is {value}; give a list"
        case "bool_type":
            return f"{name}={value} is not possible; give true or false"
        case _:
            return f"{name}={value} is not possible; give a string"
