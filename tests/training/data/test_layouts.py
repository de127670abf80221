"""Layouts of rows of plain texts: packed blocks, marked words, token ids of a teacher."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.storage import Store
from lsr_prod.training.data.layouts import (
    Layout,
    PackedLayout,
    TeacherLayout,
    TextForm,
    TokenSettings,
    WordLayout,
    pack,
    word_rows,
)
from lsr_prod.training.data.parts import PartMaker
from lsr_prod.training.data.training_set import TrainingPart, TrainingSet
from tests.training.sets import bytes_as_tokens, write_part

END = 99


def word_pieces() -> TokenSettings:
    """BERT's normalizer and word pieces over a handful of words."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "run", "##ning", "##s", ".", "no", "##w"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return TokenSettings(tokenizer.to_str(), TextForm("", 16), TextForm("", 16))


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), max_size=8), st.integers(2, 7))
def test_texts_are_packed_with_end_tokens_without_loss(texts: list[list[int]], block: int) -> None:
    blocks = list(pack([np.array(text, np.int32) for text in texts], PackedLayout(block, END)))
    joined = [token for text in texts for token in (*text, END)]
    whole = [token for one in blocks for token in one.tolist()]
    assert whole == (joined[:-1] if len(joined) % block == 1 else joined)  # one token has nothing to predict
    assert all(len(one) == block for one in blocks[:-1])


def test_existing_end_token_is_not_repeated() -> None:
    texts = [np.array(text, np.int32) for text in ([1, END], [END, 2], [3])]
    assert [one.tolist() for one in pack(texts, PackedLayout(10, END))] == [[1, END, END, 2, 3, END]]


def test_words_that_are_output_terms_have_their_token_spans() -> None:
    tokens = word_pieces()
    layout = WordLayout(("running", "cat", ".", "dog", "the"))
    (ids, words), (other, none) = word_rows(["The running cats, now.", "now"], tokens, tokens.document, layout)
    # [CLS] the run ##ning cat ##s , no ##w . [SEP]
    assert ids.tolist() == [2, 4, 6, 7, 5, 8, 1, 10, 11, 9, 3]
    assert words.reshape(-1, 3).tolist() == [[1, 2, 4], [2, 4, 0], [9, 10, 2]]
    assert (other.tolist(), none.tolist()) == ([2, 10, 11, 3], [])
    plain = Tokenizer.from_str(tokens.tokenizer).encode("The running cats, now.").ids
    assert ids.tolist() == plain


def test_word_that_does_not_fit_is_omitted_with_all_later_words() -> None:
    tokens = word_pieces()
    ((ids, words),) = word_rows(["the running cat ."], tokens, TextForm("", 4), WordLayout(("running", "cat", "the")))
    assert ids.tolist() == [2, 4, 3]
    assert words.tolist() == [1, 2, 2]


def made(
    work: Path, texts: Sequence[str], layout: Layout | None, tokens: TokenSettings
) -> tuple[TrainingPart, TrainingSet]:
    from lsr_prod.storage.formats.digests import digest_json
    from lsr_prod.training.data.prepare import _seal
    from lsr_prod.training.data.training_set import SetRecord

    data = TrainingDataSettings(paths=[str(work / "data")], kind="texts")
    made_from = {"kind": "texts"} | ({} if layout is None else {"layout": layout.to_json()})
    maker = PartMaker(data, tokens, False, digest_json(made_from), Store(str(work / "store")), {}, layout)
    part = maker.make(0, write_part(work, 0, "texts", [{"text": text} for text in texts]))
    _seal(maker.store, SetRecord(made_from, (part,)))
    return part, TrainingSet.open(maker.store, maker.digest)


def test_part_with_packed_layout(tmp_path: Path) -> None:
    tokens = TokenSettings(bytes_as_tokens().tokenizer, TextForm("", None), TextForm("", None))
    _, found = made(tmp_path, ["abc", "de", "f" * 40], PackedLayout(8, END), tokens)
    blocks = [one.documents[0].tolist() for one in found.examples(np.arange(found.rows))]
    letters = [0, 1, 2, END, 3, 4, END, *[5] * 40, END]
    assert blocks == [letters[i : i + 8] for i in range(0, 48, 8)]
    assert found.lengths.tolist() == [8] * 6


def test_part_with_word_layout_quarantines_texts_without_output_terms(tmp_path: Path) -> None:
    part, found = made(tmp_path, ["the cat", "now now", "running"], WordLayout(("cat", "running")), word_pieces())
    rows = found.examples(np.arange(2))
    assert [one.documents[1].tolist() for one in rows] == [[2, 3, 0], [1, 3, 1]]
    assert found.lengths.tolist() == [4, 4]
    assert part.quarantined == {"empty_text": 1}
    assert list((tmp_path / "store" / "sets").glob("*.quarantine/**/*.parquet"))


def test_part_with_teacher_layout_has_tokens_of_both_tokenizers(tmp_path: Path) -> None:
    layout = TeacherLayout(TokenSettings(bytes_as_tokens().tokenizer, TextForm("", 4), TextForm("q", 5)))
    part, found = made(tmp_path, ["the cat", "..."], layout, word_pieces())
    (row,) = found.examples(np.arange(found.rows)[:1])
    assert row.documents[0].tolist() == [2, 4, 5, 3]
    assert row.query.tolist() == [ord(letter) - ord("a") for letter in "qthec"]
    assert part.quarantined in ({}, {"empty_query": 1})


LAYOUTS = [
    *(PackedLayout(8, 3), PackedLayout(9, 3), PackedLayout(8, 4)),
    *(WordLayout(("a",)), WordLayout(("b",)), TeacherLayout(word_pieces())),
]


@pytest.mark.parametrize("layout", [*LAYOUTS, TeacherLayout(bytes_as_tokens())])
def test_json_form_of_a_layout_identifies_it(layout: Layout) -> None:
    text = json.dumps(layout.to_json())
    assert [json.dumps(one.to_json()) == text for one in LAYOUTS].count(True) == (layout in LAYOUTS)
