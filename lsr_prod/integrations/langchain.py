"""A retriever of LangChain (``pip install 'lsr_prod[langchain]'``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.extras import missing_extra
from lsr_prod.integrations.passages import checked_options, find_passages, open_index, read_filter
from lsr_prod.search import Filter, Searcher

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
    from pydantic import ConfigDict, Field
except ModuleNotFoundError as error:
    raise missing_extra(error) from error

__all__ = ["SparseRetriever"]


class SparseRetriever(BaseRetriever):
    """Retrieve documents of an index; their metadata are stored fields, and the score as ``relevance_score``.

    Examples:
        >>> from lsr_prod import Index
        >>> from lsr_prod.integrations.langchain import SparseRetriever
        >>> retriever = SparseRetriever(index=Index.from_texts({"lock": "hold a lock", "date": "parse a date"}), k=1)
        >>> [(document.id, document.page_content) for document in retriever.invoke("a date")]
        [('date', 'parse a date')]

    Attributes:
        index: folder or URI of a published index, or an open one.
        k: maximum number of documents; ``invoke`` takes another one.
        filter: a filter, or its JSON form; ``invoke`` takes another one.
        options: other options of a search; see ``Request``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    index: str | Path | Searcher
    k: int = 10
    filter: Filter | dict[str, Any] | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, context: Any, /) -> None:
        """Open the index, and validate the options."""
        super().model_post_init(context)
        self.index = open_index(self.index)
        checked_options(self.k, self.options, read_filter(self.filter))

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 (of the base class)
        k: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002 (the option of the search)
    ) -> list[Document]:
        assert isinstance(self.index, Searcher)
        most = self.k if k is None else k
        options = checked_options(most, self.options, read_filter(self.filter if filter is None else filter))
        return [
            Document(each.text, id=each.doc_id, metadata={**each.metadata, "relevance_score": each.score})
            for each in find_passages(self.index, query, most, options)
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **given: Any
    ) -> list[Document]:
        work = self._get_relevant_documents
        return await run_in_executor(None, work, query, run_manager=run_manager.get_sync(), **given)
