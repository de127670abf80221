"""A retriever of LlamaIndex (``pip install 'lsr_prod[llama-index]'``)."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from lsr_prod import errors, extras
from lsr_prod.integrations.passages import checked_options, condition, find_passages, open_index, read_filter, unless
from lsr_prod.search import Filter, Options, Searcher, field
from lsr_prod.search.query.filters import combine, shorten

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
except ModuleNotFoundError as error:
    raise extras.missing_extra(error) from error

__all__ = ["SparseRetriever", "filter_of_llama_index"]


_OPERATORS = {"nin": "not in", "contains": "==", "any": "in"}  # a list fulfils a condition if one of its strings does


class SparseRetriever(BaseRetriever):
    """Retrieve documents of an index as nodes; their metadata are stored fields.

    Examples:
        >>> from lsr_prod import Index
        >>> from lsr_prod.integrations.llama_index import SparseRetriever
        >>> index = Index.from_texts({"lock": "hold a lock", "date": "parse a date"})
        >>> [(node.node_id, node.text) for node in SparseRetriever(index, similarity_top_k=1).retrieve("a date")]
        [('date', 'parse a date')]
    """

    def __init__(
        self,
        index: str | Path | Searcher,
        similarity_top_k: int = 10,
        filters: MetadataFilters | Filter | Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Open an index.

        Args:
            index: folder or URI of a published index, or an open one.
            similarity_top_k: maximum number of nodes.
            filters: those of LlamaIndex, a filter of ``lsr_prod.search``, or its JSON form.
            **options: other options of a search; see ``Request``.
        """
        super().__init__()
        checked_options(similarity_top_k, options, None)  # before an index is opened
        self._searcher = searcher = open_index(index)
        if isinstance(filters, MetadataFilters):
            filters = filter_of_llama_index(filters, searcher.version.attributes)
        self._k, self._options = similarity_top_k, checked_options(similarity_top_k, options, read_filter(filters))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=TextNode(id_=each.doc_id, text=each.text, metadata=each.metadata), score=each.score)
            for each in find_passages(self._searcher, query_bundle.query_str, self._k, self._options)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def filter_of_llama_index(
    filters: MetadataFilters | MetadataFilter, attributes: Mapping[str, str] | None = None
) -> Filter:
    """Return the filter for those of LlamaIndex.

    Args:
        filters: the filters.
        attributes: type of each attribute, as ``searcher.version.attributes``. Without it, ``is_empty`` finds missing
            values only, and ``contains`` and ``any`` are refused: they need a list of strings.
    """
    if isinstance(filters, MetadataFilter):
        name, operator, kind = filters.key, filters.operator.value, (attributes or {}).get(filters.key)
        if operator in ("contains", "any", "all") and kind != "strings":
            known = f"is {kind}" if kind else "has no known type"
            raise errors.QueryError(f"{operator} needs a list of strings, but {name!r} {known}; use another operator")
        if operator == "is_empty":
            found, empty = field(name).is_null(), {"string": field(name) == "", "strings": ~field(name).starts_with("")}
            return found | empty.get(kind or "", found)
        return condition(name, _OPERATORS.get(operator, operator), filters.value)
    parts = [filter_of_llama_index(part, attributes) for part in filters.filters]
    operator = "and" if filters.condition is None else filters.condition.value
    if not parts:
        raise errors.QueryError(f"the filters {shorten(filters)} have no condition; leave them out")
    if operator == "not":
        return combine("and", *map(unless, parts))
    return combine("or" if operator == "or" else "and", *parts)
