import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.training.data import parts
from lsr_prod.training.data.parts import quarantine_name, receipts_name
from lsr_prod.training.data.training_set import TrainingPart, TrainingSet, part_schema, set_name
from tests.training.sets import make_set, part_maker, write_part

ROWS = [{"query": "abc"[: 1 + i % 3], "documents": ["xyz" * (i % 5), "b"], "scores": [i, -1]} for i in range(1, 50)]


def test_repeated_part_is_identical_and_has_a_receipt(tmp_path: Path):
    maker = part_maker(tmp_path, "scores", needs_negative=True)
    pieces = write_part(tmp_path, 0, "scores", [*ROWS, {"query": "a", "documents": ["b"], "scores": [1]}])
    first = maker.make(7, pieces)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert maker.make(7, pieces) == first
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before
    receipt = maker.store.get(f"{receipts_name(maker.digest)}/000007.json")
    assert receipt is not None
    assert TrainingPart.from_json(json.loads(receipt)) == first
    # Every fifth row has an empty text, and the last row has no negative.
    assert first.quarantined == {"empty_text": 9, "no_negative": 1}
    assert sum(first.batches) == 40
    assert first.file is not None
    with pa.ipc.open_file(tmp_path / "store" / set_name(maker.digest) / first.file.path) as reader:
        assert reader.schema == part_schema(scores=True)


def test_first_of_two_receipts_wins(tmp_path: Path):
    maker = part_maker(tmp_path, "scores")
    first = maker.make(0, write_part(tmp_path, 0, "scores", ROWS[:3]))
    assert maker.make(0, write_part(tmp_path, 0, "scores", ROWS[:4])) == first


def test_texts_without_a_token_are_quarantined_with_their_row(tmp_path: Path):
    maker = part_maker(tmp_path, "pairs")
    rows = [{"query": "a", "positive": "b"}, {"query": "123", "positive": "b"}, {"query": "a", "positive": "ÄÖ"}]
    part = maker.make(0, write_part(tmp_path, 0, "pairs", rows))
    assert part.quarantined == {"empty_query": 1, "empty_text": 1}
    lines = pq.read_table(tmp_path / "store" / quarantine_name(maker.digest)).to_pylist()
    assert [json.loads(line["raw"]) for line in lines] == [
        {"query": "123", "documents": ["b"]},
        {"query": "a", "documents": ["ÄÖ"]},
    ]
    assert {line["detail"] for line in lines} == {"the tokenizer makes no token of it"}
    assert [line["position"] for line in lines] == [32, 66]


def test_part_without_a_good_row_has_no_file(tmp_path: Path):
    maker = part_maker(tmp_path, "pairs")
    part = maker.make(0, write_part(tmp_path, 0, "pairs", [{"query": "1", "positive": "2"}]))
    assert (part.file, part.batches) == (None, ())
    assert not list((tmp_path / "store").rglob("*.arrow"))


@pytest.mark.parametrize("characters", [1, 50, 10**6])
@pytest.mark.parametrize("tokens", [1, 40, 10**6])
def test_rows_do_not_depend_on_group_and_batch_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: int, tokens: int
):
    good = [row for row in ROWS if row["documents"][0]]
    monkeypatch.setattr(parts, "_CHARACTERS", characters)
    monkeypatch.setattr(parts, "_TOKENS", tokens)
    found = TrainingSet.open(*make_set(tmp_path, "scores", [good]))
    if tokens != 40:
        assert len(found._places) == (len(good) if tokens == 1 else 1)  # record batches
    letters = {chr(97 + place): place for place in range(26)}
    for row, example in zip(good, found.examples(np.arange(found.rows)), strict=True):
        assert example.query.tolist() == [letters[letter] for letter in row["query"]]
        assert [text.tolist() for text in example.documents] == [
            [letters[letter] for letter in text][:12] for text in row["documents"]
        ]
        assert example.scores is not None
        assert example.scores.tolist() == row["scores"]
