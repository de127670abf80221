"""Diagnosis of a published index: what its postings, its stored vectors and its stored texts say, without the model."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.diagnostics.unexplained import UnexplainedRule, diagnose_vectors
from lsr_prod.evaluation.diagnostics.vectors import TextTerms, dead_terms
from lsr_prod.evaluation.efficiency import postings_curve
from lsr_prod.evaluation.matched import alive_ordinals
from lsr_prod.formats.bundle import TOKENIZER_FILE
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.inference.terms.term_reader import TermReader
from lsr_prod.search.snapshot import Snapshot


def describe_postings(frequencies: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return moments and curve of the postings lists: int64 [V], documents per term."""
    return asdict(postings_curve(frequencies))


def describe_dead(frequencies: npt.NDArray[np.int64], vocabulary: Sequence[str]) -> dict[str, Any]:
    """Return number, share and list of the terms without documents: int64 [V], documents per term."""
    found = dead_terms(frequencies, vocabulary)
    return {
        "terms": len(found.ids),
        "share": found.share,
        "special": found.special,
        "list": [vocabulary[term] for term in found.ids.tolist()],
    }


Sample = dict[int, npt.NDArray[np.int64]]


def diagnose_index(
    snapshot: Snapshot, *, sample: int, fields: Sequence[str] = (), rule: UnexplainedRule | None = None
) -> dict[str, Any]:
    """Return all figures of an open version, as plain values.

    Returns:
        ``documents``, ``terms``, ``postings`` and ``dead`` of the whole version, deleted documents included;
        ``sample`` and the keys of ``VectorDiagnosis.result`` of the sample. ``missing`` says why a figure is None.
    """
    names, missing = snapshot.vocabulary.names, dict[str, str]()
    fields = fields or snapshot.version.text_fields
    snapshot.check_fields(fields)
    places = sample_documents(snapshot, sample)
    vectors = sample_vectors(snapshot, places)
    contained = None
    if not (snapshot.bundle / TOKENIZER_FILE).is_file():
        missing["expansion"] = "the bundle has no tokenizer, so the terms of a text are not known"
    elif fields:
        try:
            reader = TermReader.open(snapshot.bundle)
            contained = TextTerms.of(reader.documents(_texts(snapshot, places, fields)))
        except ConfigError as error:
            missing["expansion"] = error.problem
    else:
        missing["expansion"] = "the index stores no text; build it with index.text_fields, or name stored fields"
    return {
        "kind": "index",
        "version": snapshot.publication.version,
        "documents": snapshot.version.documents,
        "terms": len(names),
        "postings": describe_postings(snapshot.document_frequencies),
        "dead": describe_dead(snapshot.document_frequencies, names),
        "sample": len(vectors),
        "fields": list(fields),
        **diagnose_vectors(vectors, contained, names, rule).result(),
        "missing": missing,
    }


def sample_documents(snapshot: Snapshot, count: int) -> Sample:
    """Return ordinals by shard of up to ``count`` documents that can be found, at equal distances."""
    alive = {number: alive_ordinals(reader) for number, reader in snapshot.readers.items()}
    total = sum(map(len, alive.values()))
    wanted = (
        np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64)) if total else np.zeros(0, np.int64)
    )
    places: Sample = {}
    before = 0
    for number, ordinals in alive.items():
        own = wanted[(wanted >= before) & (wanted < before + len(ordinals))] - before
        if len(own):
            places[number] = ordinals[own]
        before += len(ordinals)
    return places


def sample_vectors(snapshot: Snapshot, places: Sample) -> SparseBatch:
    """Return the vectors of some documents as they are in the postings, by shard and ordinal."""
    dk, step = snapshot.version.dk, snapshot.version.impact_step
    batches = []
    for number, ordinals in places.items():
        offsets, terms, impacts = snapshot.readers[number].shard.forward.gather(ordinals, dk)
        weights = (impacts * np.float64(step)).astype(np.float32)
        batches.append(SparseBatch(offsets, terms.astype(np.int32), weights))
    return SparseBatch.concatenate(batches)


def _texts(snapshot: Snapshot, places: Sample, fields: Sequence[str]) -> list[str]:
    columns = {name: name for name in fields}
    found = []
    for number, ordinals in places.items():
        documents = snapshot.readers[number].shard.documents
        for ordinal in ordinals.tolist():
            values = documents.fields(ordinal, columns)
            found.append(" ".join(str(values[name]) for name in fields if values[name] is not None))
    return found
