from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lsr_prod import Index
from lsr_prod.errors import ArtifactError
from lsr_prod.evaluation.vector_evaluation import encode_with_bundle
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import Bundle, EncoderCard
from lsr_prod_contrib.sweeps.vectors import encode_slice, read_slices, slices_of

DOCUMENTS = ["A lock is held.", "Square root of a number.", "Open a file.", "Signal an event.", "JSON"]
QUERIES = ["lock", "root"]


def test_slices_hold_the_vectors_of_the_encoder_in_order(tiny_bundle: Path, tmp_path: Path) -> None:
    digest, card = Bundle.load(tiny_bundle).digest, EncoderCard.load(tiny_bundle)
    output, slices = Store(str(tmp_path / "out")), slices_of(digest, card, DOCUMENTS, QUERIES, 2)
    assert [piece.stop - piece.start for piece in slices] == [2, 2, 1, 2]
    for piece in slices:
        encode_slice(piece, str(tiny_bundle), DOCUMENTS, QUERIES, output)
    found = read_slices(output, [piece.name for piece in slices if piece.kind == "document"])
    expected = BundleEncoder(tiny_bundle).encode(DOCUMENTS, kind="document")
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.array_equal(found.terms, expected.terms)
    assert np.allclose(found.weights, expected.weights, atol=1e-5)


def test_names_of_slices_depend_on_all_that_decides_their_vectors(tiny_bundle: Path) -> None:
    card = EncoderCard.load(tiny_bundle)
    names = [piece.name for piece in slices_of("a", card, DOCUMENTS, QUERIES, 100)]
    assert [piece.name for piece in slices_of("a", card, DOCUMENTS, QUERIES, 100)] == names
    assert not {piece.name for piece in slices_of("b", card, DOCUMENTS, QUERIES, 100)} & set(names)
    other_documents = slices_of("a", card, [*DOCUMENTS, "x"], QUERIES, 100)
    assert [piece.name in names for piece in other_documents] == [False, True]
    idf = replace(card, query_encoder="idf")
    before, after = (slices_of("a", idf, some, QUERIES, 100) for some in (DOCUMENTS, [*DOCUMENTS, "x"]))
    assert before[-1].name != after[-1].name, "the document frequencies have changed"


def test_damaged_slice_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.put_new("vectors/a.vectors", b"PK")
    with pytest.raises(ArtifactError, match=r"vectors/a\.vectors is damaged"):
        read_slices(store, ["vectors/a.vectors"])
    with pytest.raises(ArtifactError, match=r"lacks vectors/b\.vectors"):
        read_slices(store, ["vectors/b.vectors"])


def test_queries_equal_those_of_the_searcher(tiny_bundle: Path) -> None:
    with Index.from_texts(DOCUMENTS, tiny_bundle) as index:
        expected = index.encode(QUERIES)
    found = encode_with_bundle(tiny_bundle, QUERIES, "query", DOCUMENTS)
    for number, query in enumerate(expected):
        terms, weights = found.row(number)
        assert terms.tolist() == query.ids.tolist()
        assert np.allclose(weights, query.weights, atol=1e-5)
