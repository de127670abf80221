import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding import passages as encoder_module
from lsr_prod.encoding.passages import (
    DocumentEncoder,
    PassageSplitter,
    check_lengths,
    document_factory,
    merge_passages,
    open_document_encoder,
)
from lsr_prod.errors import ConfigError
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.storage.formats.sparse import SparseBatch
from tests.encoding.pinned import pin

SENTENCE = "the quick brown fox jumps over a lazy dog while python threads release their locks unbelievably"
WORDS = SENTENCE.split()
TEXTS = [" ".join(WORDS[(i * 7 + j) % len(WORDS)] for j in range(n)) for i, n in enumerate((1, 200, 0, 30, 73))]
SETTINGS = EncodeSettings(bundle="b", table="t")


@pytest.fixture(scope="module")
def tokenizer(splade_tiny: Path) -> Tokenizer:
    return Tokenizer.from_file(str(splade_tiny / "tokenizer.json"))


def open_encoder(
    bundle: Path,
    *,
    max_length: int | None,
    stride: int | None,
    max_passages: int,
    top_k: int = 16,
    batch_tokens: int = 256,
) -> DocumentEncoder:
    lengths = {"max_length": max_length, "passage_stride": stride, "max_passages": max_passages}
    batches = {"store_k": top_k, "batch_tokens": batch_tokens}
    return open_document_encoder(pin(bundle), SETTINGS.model_copy(update=lengths | batches))


def rows_of(batch: SparseBatch) -> list[list[tuple[int, float]]]:
    return [list(zip(*(part.tolist() for part in batch.row(i)), strict=True)) for i in range(len(batch))]


weights = st.floats(2**-10, 8, width=32)
vectors = st.dictionaries(st.integers(0, 12), weights, max_size=8)


@given(st.lists(st.tuples(st.integers(0, 4), vectors), max_size=12), st.integers(1, 9))
def test_merge_takes_the_maximum_weight_of_each_term(owned: list[tuple[int, dict[int, float]]], k: int):
    ordered = [sorted(vector.items(), key=lambda item: (-item[1], item[0])) for _, vector in owned]
    batch = SparseBatch(
        np.cumsum([0, *map(len, ordered)]),
        np.array([term for row in ordered for term, _ in row], np.int32),
        np.array([weight for row in ordered for _, weight in row], np.float32),
    )
    owners = np.array([owner for owner, _ in owned], np.int64)
    expected: list[dict[int, float]] = [{} for _ in range(5)]
    for owner, vector in owned:
        for term, weight in vector.items():
            expected[owner][term] = max(weight, expected[owner].get(term, 0.0))
    found = merge_passages(batch, owners, 5)
    assert rows_of(found) == [sorted(row.items(), key=lambda item: (-item[1], item[0])) for row in expected]
    assert (found.terms.dtype, found.weights.dtype, found.offsets.dtype) == (np.int32, np.float32, np.int64)
    # k terms per passage suffice for k terms of the document
    assert rows_of(merge_passages(batch.top(k), owners, 5).top(k)) == rows_of(found.top(k))


@settings(deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=60),
    length=st.integers(3, 40),
    stride=st.integers(1, 38),
    most=st.integers(1, 70),
)
def test_windows_equal_those_of_the_tokenizer(
    tokenizer: Tokenizer, words: list[str], length: int, stride: int, most: int
):
    text, stride = " ".join(words), min(stride, length - 2)
    splitter = PassageSplitter(tokenizer, prompt="", max_length=length, stride=stride, max_passages=most)
    (found,), cut = splitter.split([text])
    reference = Tokenizer.from_str(tokenizer.to_str())
    reference.no_padding()
    reference.enable_truncation(length, stride=length - 2 - stride)
    encoding = reference.encode(text)
    expected = [encoding.ids, *(rest.ids for rest in encoding.overflowing)]
    assert found == expected[:most]
    assert cut == (len(expected) > most)


def test_each_passage_has_the_prompt_and_a_short_text_is_one_passage(tokenizer: Tokenizer):
    prompt = "passage of a book: "
    splitter = PassageSplitter(tokenizer, prompt=prompt, max_length=20, stride=6, max_passages=99)
    (long, short, invisible), cut = splitter.split([TEXTS[1], "the fox", " \n"])
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_truncation()
    head = plain.encode(prompt).ids[:-1]
    body = plain.encode(TEXTS[1], add_special_tokens=False).ids
    size = 20 - len(head) - 1
    assert all(row[: len(head)] == head and row[-1] == head[0] + 1 for row in long)
    assert [row[len(head) : -1] for row in long] == [body[at : at + size] for at in range(0, len(long) * 6, 6)]
    assert (len(long) - 1) * 6 + size >= len(body) > (len(long) - 2) * 6 + size
    assert short == [plain.encode(prompt + "the fox").ids]
    assert (invisible, cut) == ([], 0)


def test_token_that_spans_prompt_and_text_belongs_to_the_text():
    ids = {token: i for i, token in enumerate(["<s>", "</s>", "a", "b", ":", ":a"])}
    tokenizer = Tokenizer(BPE(vocab=ids, merges=[(":", "a")]))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    splitter = PassageSplitter(tokenizer, prompt="b:", max_length=5, stride=1, max_passages=9)
    (rows,), _ = splitter.split(["aabb"])  # b | :a a b b
    assert rows == [[0, 3, 5, 2, 1], [0, 3, 2, 3, 1], [0, 3, 3, 3, 1]]


def slow_document(encoder: BundleEncoder, text: str, length: int, stride: int, most: int) -> dict[int, float]:
    """Encode every window separately and merge them term by term."""
    (ids,) = encoder.token_ids([text], kind="document", max_length=500)
    content, joined = ids[1:-1], dict[int, float]()
    for number in range(most):
        window = content[number * stride : number * stride + length - 2]
        for term, weight in rows_of(encoder.encode_ids([[ids[0], *window, ids[-1]]]))[0]:
            joined[term] = max(weight, joined.get(term, 0.0))
        if number * stride + length - 2 >= len(content):
            break
    return joined


@pytest.mark.parametrize(
    ("length", "stride", "most"),
    [
        (16, 7, 4),
        (128, 100, 1),
        pytest.param(32, 30, 99, marks=pytest.mark.long),
        pytest.param(32, 15, 99, marks=pytest.mark.long),
    ],
)
def test_document_is_the_maximum_of_its_separately_encoded_windows(
    tiny_bundle: Path, length: int, stride: int, most: int
):
    lengths = {"max_length": length, "stride": stride, "max_passages": most}
    reference = BundleEncoder(tiny_bundle)
    found = open_encoder(tiny_bundle, **lengths, top_k=512).encode(TEXTS)
    assert len(found) == len(TEXTS)
    for text, row in zip(TEXTS, rows_of(found), strict=True):
        expected = slow_document(reference, text, length, stride, most) if text else {}
        # batches of other shapes round differently, so the last of the 512 terms may differ
        heaviest = sorted(expected.values(), reverse=True)[:512]
        assert len(row) == len(heaviest)
        for term, weight in row:
            assert weight == pytest.approx(expected[term], abs=1e-4)
    assert rows_of(open_encoder(tiny_bundle, **lengths, top_k=9).encode(TEXTS)) == rows_of(found.top(9))


def test_documents_beyond_their_last_passage_are_counted_as_cut(tiny_bundle: Path):
    encoder = open_encoder(tiny_bundle, max_length=32, stride=30, max_passages=4)
    ids = BundleEncoder(tiny_bundle).token_ids(TEXTS, kind="document", max_length=500)
    needed = [-(-max(len(row) - 2, 0) // 30) for row in ids]
    assert sorted(number > 4 for number in needed) == [False] * 4 + [True]
    encoder.encode(TEXTS)
    assert encoder.counters.cut == 1
    assert encoder.counters.documents == sum(min(number, 4) for number in needed)
    encoder.encode(TEXTS[1:2])
    assert encoder.counters.cut == 2


def equal(one: SparseBatch, other: SparseBatch) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("offsets", "terms", "weights"))


def test_documents_are_cut_without_a_stride(tiny_bundle: Path):
    reference = BundleEncoder(tiny_bundle)
    expected = reference.encode(TEXTS, kind="document", top_k=64, batch_tokens=256)
    plain = open_encoder(tiny_bundle, max_length=None, stride=None, max_passages=64, top_k=64)
    assert equal(plain.encode(TEXTS), expected)
    cut = open_encoder(tiny_bundle, max_length=16, stride=None, max_passages=64, top_k=64)
    found = cut.encode(TEXTS)
    short = reference.encode_ids(reference.token_ids(TEXTS, kind="document", max_length=16), top_k=64, batch_tokens=256)
    assert equal(found, short)
    assert not equal(found, expected)
    assert (plain.counters.cut, cut.counters.cut) == (0, 0)


@pytest.mark.parametrize("stride", [None, 20])
def test_groups_of_texts_bound_memory_and_keep_the_vectors(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, stride: int | None
):
    encoder = open_encoder(tiny_bundle, max_length=32, stride=stride, max_passages=4, batch_tokens=1)
    whole = encoder.encode(TEXTS)
    groups: list[Sequence[str]] = []
    original = DocumentEncoder._documents

    def spy(self: DocumentEncoder, texts: Sequence[str]) -> SparseBatch:
        groups.append(texts)
        return original(self, texts)

    monkeypatch.setattr(encoder_module, "_CHARACTERS", 300)
    monkeypatch.setattr(DocumentEncoder, "_documents", spy)
    assert equal(encoder.encode(TEXTS), whole)
    assert [text for group in groups for text in group] == TEXTS
    assert len(groups) > 2
    assert all(len(group) == 1 or sum(map(len, group)) <= 300 for group in groups)
    assert len(encoder.encode([])) == 0


@pytest.mark.parametrize("stride", [None, 20])
def test_mass_is_that_of_the_whole_document(tiny_bundle: Path, stride: int | None):
    lengths = {"max_length": 32, "passage_stride": stride, "max_passages": 3}
    chosen = SETTINGS.model_copy(update={**lengths, "store_k": 16, "batch_tokens": 256})
    whole, pruned = (
        document_factory(pin(tiny_bundle), chosen.model_copy(update={"store_mass": mass})).open().encode([*TEXTS, " "])
        for mass in (None, 0.5)
    )
    assert equal(pruned, whole.mass(0.5))
    assert 0 < len(pruned.terms) < len(whole.terms)


def test_factory_opens_an_encoder_with_the_settings(tiny_bundle: Path):
    lengths = {"max_length": 32, "passage_stride": 20, "max_passages": 3}
    chosen = SETTINGS.model_copy(update={**lengths, "store_k": 16, "batch_tokens": 256})
    factory = document_factory(pin(tiny_bundle), chosen, threads=1)
    again = pickle.loads(pickle.dumps(factory))
    direct = open_encoder(tiny_bundle, max_length=32, stride=20, max_passages=3)
    assert equal(again.open().encode(TEXTS), direct.encode(TEXTS))


@pytest.mark.parametrize(
    ("change", "prompt", "field", "words"),
    [
        (
            {"max_length": 513},
            "",
            "encode.max_length",
            "513 is more than the 512 tokens that the model supports",
        ),
        ({"max_length": 2}, "", "encode.max_length", "2 leaves no token for text; give more than 2"),
        ({"max_length": 5}, "a book: ", "encode.max_length", "5 leaves no token for text; give more than 5"),
        ({"max_length": 32, "passage_stride": 31}, "", "encode.passage_stride", "31 is more than the 30 tokens"),
        ({"max_length": 32, "passage_stride": 28}, "a book: ", "encode.passage_stride", "more than the 27 tokens"),
        ({"passage_stride": 127}, "", "encode.passage_stride", "127 is more than the 126 tokens"),
    ],
)
def test_contradicting_lengths_are_refused(
    tiny_bundle: Path, tmp_path: Path, change: dict, prompt: str, field: str, words: str
):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    card = EncoderCard.load(folder).to_json() | {"document_prompt": prompt}
    (folder / "encoder_card.json").write_text(json.dumps(card))
    with pytest.raises(ConfigError, match=words) as caught:
        check_lengths(folder, SETTINGS.model_copy(update=change))
    assert caught.value.field == field
    check_lengths(folder, SETTINGS)
    check_lengths(folder, SETTINGS.model_copy(update={"max_length": 512, "passage_stride": 100}))


def test_positions_of_roberta_before_the_padding_index_are_not_counted(tiny_bundle: Path, tmp_path: Path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 514})
    )
    check_lengths(folder, SETTINGS.model_copy(update={"max_length": 512}))
    with pytest.raises(ConfigError, match="give 512 or less"):
        check_lengths(folder, SETTINGS.model_copy(update={"max_length": 513}))
