import numpy as np
import pytest

from lsr_prod.errors import SourceError
from lsr_prod_contrib.vectors import Vocabulary, batch_of_decoded, batch_of_tensor

torch = pytest.importorskip("torch")

DENSE = [[0, 2.5, 0, 1.0], [0, 0, 0, 0], [3.0, 1.0, 0, 3.0]]
FORMS = {
    "coo": lambda dense: dense.to_sparse(),
    "csr": lambda dense: dense.to_sparse_csr(),
    "dense": lambda dense: dense,
    "half": lambda dense: dense.half().to_sparse(),
    "bfloat16": lambda dense: dense.bfloat16().to_sparse(),
    "gradient": lambda dense: dense.clone().requires_grad_().to_sparse(),
    "list": lambda dense: [row.to_sparse() for row in dense],
    "uncoalesced": lambda dense: (dense / 2).to_sparse() + (dense / 2).to_sparse(),
}


@pytest.fixture(scope="module")
def four() -> Vocabulary:
    return Vocabulary(tuple("abcd"), {term: i for i, term in enumerate("abcd")}, "s" * 64, "b" * 64)


@pytest.mark.parametrize("form", FORMS)
def test_all_tensor_layouts_give_the_same_batch(four, form):
    batch = batch_of_tensor(FORMS[form](torch.tensor(DENSE)), four)
    assert batch.offsets.tolist() == [0, 2, 2, 5]
    assert batch.terms.tolist() == [1, 3, 0, 3, 1]
    assert batch.weights.tolist() == [2.5, 1.0, 3.0, 3.0, 1.0]


def test_single_vector_becomes_a_batch_of_one(four):
    assert batch_of_tensor(torch.tensor(DENSE[0]).to_sparse(), four).terms.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("values", "words"),
    [([[1.0, -1, 0, 0]], "vector 0: -1.0"), ([[1.0, float("nan"), 0, 0]], "nan"), ([[1.0] * 5], "4 terms")],
)
def test_impossible_tensors_are_rejected(four, values, words):
    with pytest.raises(SourceError, match=words):
        batch_of_tensor(torch.tensor(values).to_sparse(), four)


@pytest.mark.parametrize("decoded", [[[("b", 2.5), ("d", 1.0)], []], [{"d": 1, "b": 2.5}, {}]])
def test_decoded_terms_give_the_same_vectors(four, decoded):
    batch = batch_of_decoded(decoded, four)
    assert (batch.terms.tolist(), batch.weights.tolist(), len(batch)) == ([1, 3], [2.5, 1.0], 2)


@pytest.mark.parametrize(
    ("decoded", "words"), [([("e", 1.0)], "'e'"), ([("a", 1.0), ("a", 2.0)], "twice"), ([("a", -1.0)], "-1")]
)
def test_decoded_terms_are_validated(four, decoded, words):
    with pytest.raises(SourceError, match=words):
        batch_of_decoded([decoded], four)


def test_sentence_transformers_output_equals_our_encoder(tiny_model, tiny_bundle):
    st = pytest.importorskip("sentence_transformers")
    from lsr_prod.inference import BundleEncoder

    texts = ["A lock is released by the thread that holds it.", "", "Parse a JSON string."]
    model = st.SparseEncoder(str(tiny_model), device="cpu")
    vocabulary = Vocabulary.load(tiny_bundle)
    embeddings = model.encode_document(texts)
    from_tensor = batch_of_tensor(embeddings, vocabulary)
    from_decoded = batch_of_decoded(model.decode(embeddings), vocabulary)
    for name in ("offsets", "terms", "weights"):
        assert np.array_equal(getattr(from_tensor, name), getattr(from_decoded, name)), name
    ours = BundleEncoder(tiny_bundle).encode(texts, kind="document")
    for i in (0, 2):  # a text without a visible character counts as empty
        terms, weights = from_tensor.row(i)
        wanted = dict(zip(*(values.tolist() for values in ours.row(i)), strict=True))
        assert set(terms[:50].tolist()) <= set(wanted)
        assert weights[:50].tolist() == pytest.approx([wanted[term] for term in terms[:50].tolist()], abs=1e-3)
