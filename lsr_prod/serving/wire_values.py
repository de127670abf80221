"""Forms of the values of requests: how a client writes a value as JSON, and how the router reads it.

The form of an option of a search follows from its type in ``Options``. Only forms are validated here; the search
validates the values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filter_types import filter_from_json
from lsr_prod.search.query.filters import Filter, shorten
from lsr_prod.search.query.request import Hybrid, Options

_OF_HYBRID = {each.name: each for each in fields(Hybrid)}


def plain(value: Any) -> Any:
    """Return numpy scalars as Python numbers. The router refuses values that JSON does not have."""
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, slots=True)
class Form:
    """Form of a value."""

    # returns a value of JSON as the search takes it, given the name of the option
    read: Callable[[str, Any], Any] = lambda _, value: value
    write: Callable[[Any], Any] = plain  # returns a value as JSON


def read_object(value: Any, forms: Mapping[str, Form], required: Collection[str] = ()) -> dict[str, Any]:
    """Read an object whose entries have these forms."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise QueryError(f"the request is {shorten(value)}; give an object with text or vector")
    for name in value:
        if name not in forms:
            raise QueryError(f"the request has {shorten(name)}, which is unknown; give some of: {', '.join(forms)}")
    for name in required:
        if name not in value:
            raise QueryError(f"the request has no {name}; give it")
    return {name: forms[name].read(name, each) for name, each in value.items()}


def hybrid_to_json(hybrid: Any) -> dict[str, Any] | None:
    """Return ``Hybrid`` as an object; None: none."""
    if hybrid is not None and not isinstance(hybrid, Hybrid):
        raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")
    return None if hybrid is None else asdict(hybrid)


def vector_to_json(vector: Any) -> list[list[Any]]:
    """Return a vector as pairs of term and weight."""
    if not isinstance(vector, Mapping):
        raise QueryError(f"the query {type(vector).__name__} is no vector; give a mapping from terms to weights")
    return [[plain(term), plain(weight)] for term, weight in vector.items()]


def _of_type(kind: type, wanted: str, *, optional: bool = False) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        if not isinstance(value, kind) and not (optional and value is None):
            raise QueryError(f"{name} is {shorten(value)}; give {wanted}")
        return value

    return read


def _read_filter(_: str, value: Any) -> Filter | None:
    return None if value is None else filter_from_json(value)


def _filter_to_json(expression: Any) -> Any:
    if expression is not None and not isinstance(expression, Filter):
        raise QueryError(
            f"the filter {shorten(expression)} is not a filter; build it with field() or filter_from_json()"
        )
    return None if expression is None else expression.to_json()


def _read_hybrid(_: str, value: Any) -> Hybrid | None:
    """Read ``Hybrid`` from an object with some of its attributes."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value.keys() <= _OF_HYBRID.keys():
        known = ", ".join(_OF_HYBRID)
        raise QueryError(f"hybrid={shorten(value)} is not possible; give an object with some of: {known}")
    return Hybrid(**value)


def _read_vector(_: str, value: Any) -> dict[Any, Any]:
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


VALUE = Form()
STRING = Form(_of_type(str, "a string"))
LIST = Form(_of_type(list, "a list"), lambda value: list(value) if isinstance(value, tuple) else value)
VECTOR = Form(_read_vector, vector_to_json)
_OF_TYPES = {
    bool: Form(_of_type(bool, "true or false")),
    str | None: Form(_of_type(str, "a string", optional=True)),
    Sequence[str]: LIST,
    Filter | None: Form(_read_filter, _filter_to_json),
    Hybrid | None: Form(_read_hybrid, hybrid_to_json),
}
OPTION_FORMS = {name: _OF_TYPES.get(kind, VALUE) for name, kind in get_type_hints(Options).items()}
"""Form of every option of a search."""
