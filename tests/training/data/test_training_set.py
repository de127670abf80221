import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError
from lsr_prod.storage import Store
from lsr_prod.training.data.prepare import _seal
from lsr_prod.training.data.training_set import SetRecord, TrainingSet, set_name
from tests.training.sets import made_from, make_set

letters = st.text("abcxyz", min_size=1, max_size=20)
rows_of_parts = st.lists(
    st.lists(
        st.fixed_dictionaries({"query": letters, "positive": letters, "negatives": st.lists(letters, max_size=4)})
    ),
    min_size=1,
    max_size=4,
)


def tokens(text: str, longest: int) -> list[int]:
    return [ord(letter) - ord("a") for letter in text][:longest]


def good(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["positive"] not in row["negatives"]]


@given(rows_of_parts, st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_read_by_number(tmp_path_factory: pytest.TempPathFactory, parts: Any, data: st.DataObject):
    found = TrainingSet.open(*make_set(tmp_path_factory.mktemp("set"), "negatives", parts))
    rows = [row for part in parts for row in good(part)]
    assert found.rows == len(rows)
    assert found.lengths.dtype == np.int32
    assert found.lengths.tolist() == [
        max(len(tokens(row["query"], 9)), *(len(tokens(text, 12)) for text in (row["positive"], *row["negatives"])))
        for row in rows
    ]
    if not rows:
        return
    wanted = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)), np.int64)
    for number, example in zip(wanted.tolist(), found.examples(wanted), strict=True):
        row = rows[number]
        assert example.query.tolist() == tokens(row["query"], 9)
        assert [text.tolist() for text in example.documents] == [
            tokens(text, 12) for text in (row["positive"], *row["negatives"])
        ]
        assert example.query.dtype == np.int32
        assert example.scores is None


ROWS = [{"query": "abc", "documents": ["xyz", "b", "cc"], "scores": [i, 0.5, -1]} for i in range(20)]


@pytest.fixture
def scored(tmp_path: Path) -> tuple[Store, str]:
    return make_set(tmp_path, "scores", [ROWS[:12], ROWS[12:]])


def test_examples_are_read_only_views_of_the_files(scored: tuple[Store, str]):
    (example,) = TrainingSet.open(*scored).examples(np.array([13]))
    assert example.scores is not None
    assert example.scores.tolist() == [13, 0.5, -1]
    for array in (example.query, *example.documents, example.scores):
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_missing_row_numbers_raise(scored: tuple[Store, str]):
    found = TrainingSet.open(*scored)
    assert found.examples(np.empty(0, np.int64)) == []
    for row in (-1, 20):
        with pytest.raises(IndexError, match="the set has rows 0 to 19"):
            found.examples(np.array([0, row]))


def test_pickled_set_is_small_and_opens_in_another_process(scored: tuple[Store, str], tmp_path: Path):
    found = TrainingSet.open(*scored)
    assert len(found.lengths) == 20
    data = pickle.dumps(found)
    assert len(data) < 1000
    (tmp_path / "set.pickle").write_bytes(data)
    code = (
        "import pickle, sys, numpy as np; found = pickle.load(open(sys.argv[1], 'rb'));"
        "print(found.examples(np.array([17]))[0].scores.tolist())"
    )
    shown = subprocess.run([sys.executable, "-c", code, tmp_path / "set.pickle"], capture_output=True, text=True)
    assert shown.stdout.strip() == "[17.0, 0.5, -1.0]", shown.stderr


def test_damage_is_detected_when_the_set_is_opened(scored: tuple[Store, str]):
    store, digest = scored
    path = sorted(Path(store.uri).rglob("part-*.arrow"))[1]
    content = path.read_bytes()
    path.write_bytes(content[:600] + bytes([content[600] ^ 1]) + content[601:])
    with pytest.raises(DigestMismatchError, match="differs from its recorded sha256"):
        TrainingSet.open(store, digest)
    path.write_bytes(content[:-1])
    with pytest.raises(ArtifactError):
        TrainingSet.open(store, digest, verify=False)
    path.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        TrainingSet.open(store, digest)


def test_incomplete_or_other_set_is_rejected(scored: tuple[Store, str], tmp_path: Path):
    store, digest = scored
    (tmp_path / "store" / f"{set_name(digest)}.json").rename(tmp_path / "store" / f"{set_name('f' * 64)}.json")
    with pytest.raises(ArtifactError, match="give the URI that a job wrote to, or run that job again"):
        TrainingSet.open(store, digest)
    (tmp_path / "store" / set_name(digest)).rename(tmp_path / "store" / set_name("f" * 64))
    with pytest.raises(ArtifactError, match="describes another set"):
        TrainingSet.open(store, "f" * 64)


def test_record_of_another_format_is_rejected():
    record = SetRecord(made_from("pairs"), ())
    assert SetRecord.from_json(record.to_json()) == record
    with pytest.raises(FormatVersionError, match="format 2, this release reads 3"):
        SetRecord.from_json(record.to_json() | {"format": 2})


def test_set_without_rows_has_no_lengths(tmp_path: Path):
    record = SetRecord(made_from("pairs"), ())
    _seal(Store(str(tmp_path)), record)
    found = TrainingSet.open(Store(str(tmp_path)), record.digest)
    assert found.rows == len(found.lengths) == 0
