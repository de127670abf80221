"""Search systems of mteb over an index (``pip install 'lsr_prod[mteb]'``)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from lsr_prod import errors, extras
from lsr_prod.indexing.text_index import Index
from lsr_prod.search import Options, Searcher
from lsr_prod.storage.folders import open_bundle

try:
    from mteb._create_dataloaders import create_dataloader  # as the search systems of mteb read texts
    from mteb.models.model_meta import ModelMeta, ScoringFunction
    from mteb.types import PromptType
except ModuleNotFoundError as error:
    raise extras.missing_extra(error) from error

__all__ = ["IndexSearch"]

_MOST_IDS = 10_000  # of one call of ``Searcher.get``


class IndexSearch:
    """A search system of mteb: indexes the corpus of every task, or searches an index that was published.

    Examples:
        >>> from lsr_prod.integrations.mteb import IndexSearch
        >>> system = IndexSearch("bundle", overlap_threshold=0.3)  # mteb.evaluate(system, mteb.get_tasks(["SciFact"]))
        >>> system.mteb_model_meta.experiment_kwargs
        {'bm25': False, 'overlap_threshold': '0.3'}

    Attributes:
        mteb_model_meta: name, digest and options, by which mteb caches results.
    """

    def __init__(
        self,
        source: str | Path | Searcher | None = None,
        *,
        name: str = "lsr_prod/index",
        bm25: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Choose what is searched.

        Args:
            source: folder or URI of the bundle that encodes the corpus of every task; None: the words of the texts are
                the terms, as in ``Index.from_texts``; or an open index of the corpus of the only task.
            name: name in the results, ``organization/name``.
            bm25: whether words have postings, for the option ``hybrid``; not of an open index.
            **options: options of every search; see ``Request``.
        """
        self._opened = source if isinstance(source, Searcher) else None
        self._encoder = None if isinstance(source, Searcher) else source
        self._bm25, self._options, self._index = bm25, options, self._opened
        digest = "words" if self._encoder is None else open_bundle(str(self._encoder))[1].digest
        settings = {"bm25": bm25, **{key: str(value) for key, value in options.items()}}
        self.mteb_model_meta = describe(name, digest if self._opened is None else self._opened.version.sha, settings)

    def index(self, corpus: Any, *, task_metadata: Any, **_: Any) -> None:
        """Index a corpus; of an open index, compare the ids of its documents with those of the corpus."""
        ids = list(corpus["id"])
        if self._opened is None:
            texts = texts_of(create_dataloader(corpus, task_metadata=task_metadata, prompt_type=PromptType.document))
            by_id = dict(zip(ids, texts, strict=True))
            if len(by_id) < len(ids):
                raise errors.ConfigError("corpus", f"{task_metadata.name} repeats an id", "give every document its own")
            self._index = Index.from_texts(by_id, self._encoder, bm25=self._bm25)
            return
        parts = [self._opened.get(ids[start : start + _MOST_IDS]) for start in range(0, len(ids), _MOST_IDS)]
        missing, documents = sum(part.count(None) for part in parts), self._opened.version.documents
        if missing or documents != len(ids):
            found = f"{documents} documents are open, without {missing} of the {len(ids)} of {task_metadata.name}"
            raise errors.ConfigError("source", found, "open an index of the corpus of this task")

    def search(
        self, queries: Any, *, task_metadata: Any, top_k: int, top_ranked: Any = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Search for queries; returns the score by document id, by query id."""
        if top_ranked is not None or self._index is None:
            raise errors.ConfigError("tasks", f"{task_metadata.name} ranks given texts", "evaluate a BundleModel on it")
        texts = texts_of(create_dataloader(queries, task_metadata=task_metadata, prompt_type=PromptType.query))
        results = self._index.search_batch(texts, top_k, **self._options)
        found = [{hit.doc_id: float(hit.score) for hit in result.hits} for result in results]
        return dict(zip(queries["id"], found, strict=True))


def texts_of(inputs: Iterable[Any]) -> list[str]:
    """Return the texts of batches of mteb."""
    return [text for batch in inputs for text in batch["text"]]


def describe(name: str, digest: str, settings: Mapping[str, Any]) -> ModelMeta:
    """Return what mteb shows of a system; a result is cached by name, revision and settings."""
    given = {"name": name, "revision": digest, "similarity_fn_name": ScoringFunction.DOT_PRODUCT}
    return ModelMeta.create_empty({**given, "model_type": ["sparse"], "experiment_kwargs": dict(settings) or None})
