"""The index used for mining: search hits, and scores of documents and of texts that are not in the index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lsr_prod.config import MineSettings
from lsr_prod.errors import ArtifactError, ConfigError, PublicationError, QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.storage import is_remote, require_exists
from lsr_prod.storage.formats.table import quantize
from lsr_prod.training.negatives.rules import Candidate


@dataclass(frozen=True, slots=True)
class Answer:
    """Search result of one query."""

    query: SparseQuery  # sparse vector of the query
    hits: tuple[Candidate, ...]  # in descending order of score


class MinedIndex:
    """A published index, open for mining; ``version``: sha256 of the index version that is searched."""

    def __init__(self, settings: MineSettings, options: Mapping[str, str], *, version: str | None = None) -> None:
        self._settings = settings
        if not is_remote(settings.index):
            require_exists("mine.index", settings.index)
        try:
            self._searcher = Searcher.open(
                settings.index,
                encoder_threads=settings.threads_per_actor,
                cache=settings.cache,
                storage_options=options,
            )
        except PublicationError as error:
            raise ConfigError("mine.index", str(error), "publish the index first") from error
        self.version = self._searcher.snapshot.publication.version
        if version is not None and version != self.version:
            raise ArtifactError(
                f"{settings.index} was published again while it was mined; run the job again with another mine.output"
            )
        self.documents = self._searcher.documents  # that a search can return
        stored = self._searcher.version.stored_fields
        if absent := [name for name in settings.text_fields if name not in stored]:
            problem = f"{settings.index} does not store {', '.join(absent)}"
            remedy = f"it stores: {', '.join(stored) or 'no text; encode with source.stored_fields and index again'}"
            raise ConfigError("mine.text_fields", problem, remedy)
        if not self.documents:
            raise ConfigError("mine.index", f"{settings.index} holds no documents", "index a corpus first")

    def warm(self) -> None:
        """Load the query encoder."""
        self._searcher.warm()

    def answer(self, queries: Sequence[str]) -> list[Answer]:
        """Return the first ``depth`` hits of every query, with their texts."""
        settings = self._settings
        vocabulary = self._searcher.snapshot.vocabulary
        answers = []
        for result in self._searcher.search_batch(list(queries), settings.depth, fields=settings.text_fields):
            query = SparseQuery.from_vector({term.term: term.weight for term in result.query}, vocabulary)
            hits = tuple(Candidate(hit.doc_id, self._text(hit.fields), hit.score) for hit in result.hits)
            answers.append(Answer(query, hits))
        return answers

    def document(self, doc_id: str, query: SparseQuery) -> Candidate | None:
        """Return a document with its score for a query, bit-identical to a search; None if the index lacks it."""
        snapshot = self._searcher.snapshot
        try:
            number, ordinal = snapshot.find(doc_id)
        except QueryError:
            return None
        reader, known = snapshot.readers[number], query.ids >= 0
        weights = query.scaled(snapshot.version.impact_step)[known]
        scores, _ = reader.shard.forward.score(np.array([ordinal]), query.ids[known], weights, dk=reader.dk)
        fields = reader.shard.documents.fields(ordinal, {name: name for name in self._settings.text_fields})
        return Candidate(doc_id, self._text(fields), float(scores[0]))

    def scores_of_texts(self, texts: Sequence[str], queries: Sequence[SparseQuery]) -> list[float]:
        """Return the score that ``texts[i]`` would have for ``queries[i]`` as a document of the index.

        A text is encoded as a document, then pruned and quantized like the index; it is truncated to the document
        length of the encoder card.
        """
        version = self._searcher.version
        encoded = self._searcher.encoder.encode(list(texts), kind="document", top_k=version.dk)
        scores = []
        for i, query in enumerate(queries):
            terms, weights = encoded.row(i)
            impacts = dict(zip(terms.tolist(), quantize(weights, version.impact_step)[0].tolist(), strict=True))
            score = np.float32(0)
            for term, weight in zip(query.ids.tolist(), query.scaled(version.impact_step), strict=True):
                if term in impacts:
                    score += weight * np.float32(impacts[term])
            scores.append(float(score))
        return scores

    def _text(self, fields: Mapping[str, object]) -> str:
        values = [str(fields[name]) for name in self._settings.text_fields if fields.get(name)]
        return self._settings.separator.join(values)
