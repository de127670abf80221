"""A retriever of Haystack (``pip install 'lsr_prod[haystack]'``)."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.extras import missing_extra
from lsr_prod.integrations.passages import checked_options, condition, find_passages, open_index, read_filter, unless
from lsr_prod.search import Filter, Options, Searcher
from lsr_prod.search.query.filters import combine, shorten
from lsr_prod.serving.wire import OPTION_FORMS

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ModuleNotFoundError as error:
    raise missing_extra(error) from error

__all__ = ["SparseRetriever", "filter_of_haystack"]


@component
class SparseRetriever:
    """A component that retrieves documents of an index.

    Examples:
        >>> from lsr_prod import Index
        >>> from lsr_prod.integrations.haystack import SparseRetriever
        >>> retriever = SparseRetriever(Index.from_texts({"lock": "hold a lock", "date": "parse a date"}), top_k=1)
        >>> [(document.id, document.content) for document in retriever.run("a date")["documents"]]
        [('date', 'parse a date')]
    """

    def __init__(
        self, index: str | Path | Searcher, top_k: int = 10, filters: Any = None, **options: Unpack[Options]
    ) -> None:
        """Open an index.

        Args:
            index: folder or URI of a published index; an open one cannot be serialized with its pipeline.
            top_k: maximum number of documents; ``run`` takes another one.
            filters: in the form of Haystack, a filter of ``lsr_prod.search``, or its JSON form; ``run`` takes others,
                and {} for none.
            **options: other options of a search; see ``Request``. ``hybrid`` may have its JSON form.
        """
        self._index, self._top_k, self._filters = index, top_k, filters
        self._options: dict[str, Any] = {**options}
        if isinstance(options.get("hybrid"), dict):
            self._options["hybrid"] = OPTION_FORMS["hybrid"].read("hybrid", options["hybrid"])
        checked_options(top_k, self._options, filter_of_haystack(filters))
        self._searcher = open_index(index)

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a dictionary."""
        if isinstance(self._index, Searcher):
            raise ConfigError("index", "an open index cannot be serialized", "give the folder or URI of the index")
        given = {name: OPTION_FORMS[name].write(each) for name, each in self._options.items()}
        filters = self._filters.to_json() if isinstance(self._filters, Filter) else self._filters
        return default_to_dict(self, index=str(self._index), top_k=self._top_k, filters=filters, **given)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SparseRetriever":
        """Return the component of a dictionary."""
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: Any = None, top_k: int | None = None) -> dict[str, Any]:
        """Return the documents of a query, best first."""
        most = self._top_k if top_k is None else top_k
        chosen = filter_of_haystack(self._filters if filters is None else filters)
        found = find_passages(self._searcher, query, most, checked_options(most, self._options, chosen))
        return {"documents": [Document(one.doc_id, one.text, meta=one.metadata, score=one.score) for one in found]}

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, filters: Any = None, top_k: int | None = None) -> dict[str, Any]:
        """Return the documents of a query, best first; the event loop is not blocked."""
        return await asyncio.to_thread(self.run, query, filters, top_k)


def filter_of_haystack(value: Any) -> Filter | None:
    """Return the filter for one of Haystack: a comparison, or AND, OR, NOT of some; ``meta.`` of a name is left out."""
    if not isinstance(value, Mapping) or "operator" not in value:
        return None if value == {} else read_filter(value)
    operator, given = value["operator"], value.get("conditions")
    if {"field", "value"} <= value.keys():
        return condition(str(value["field"]).removeprefix("meta."), operator, value["value"])
    parts = [part for part in map(filter_of_haystack, given) if part is not None] if isinstance(given, list) else []
    if operator not in ("AND", "OR", "NOT") or not parts or len(parts) < len(value["conditions"]):
        known = "field, operator and value, or AND, OR or NOT with conditions"
        raise QueryError(f"the filter {shorten(value)} is not possible; give {known}")
    joined = combine("or" if operator == "OR" else "and", *parts)
    return unless(joined) if operator == "NOT" else joined
