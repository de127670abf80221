from pathlib import Path

import pytest

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.errors import ConfigError, QuarantineOverflowError
from lsr_prod.training.data import training_rows
from lsr_prod.training.data.training_rows import read_good_rows, sample_rows
from tests.training.vocabulary.corpora import write_texts


@pytest.mark.parametrize("files", [1, 3])
def test_sample_is_spread_and_deterministic(tmp_path: Path, files: int):
    texts = [f"text {i} " + "x" * 3000 for i in range(600)]
    data = write_texts(tmp_path, texts, files=files)
    found = [row.documents[0] for row in sample_rows(data, {}, 60)]
    assert found == [row.documents[0] for row in sample_rows(data, {}, 60)]
    assert len(set(found)) == 60
    places = [texts.index(text) for text in found]
    assert max(places) > 500
    assert min(places) < 100


def test_files_are_not_opened_after_the_sample_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = write_texts(tmp_path, [f"text {i}" for i in range(300)], files=300)
    opened, whole = [], training_rows.read_rows

    def read_rows(piece, *given, **named):
        opened.append(piece.file.name)
        yield from whole(piece, *given, **named)

    monkeypatch.setattr(training_rows, "read_rows", read_rows)
    assert len(sample_rows(data, {}, 64)) == 64
    assert len(opened) < 150


@pytest.mark.parametrize("files", [1, 150])
def test_sample_larger_than_the_data_has_all_rows(tmp_path: Path, files: int):
    texts = [f"text {i}" for i in range(300)]
    data = write_texts(tmp_path, texts, files=files)
    assert sorted(row.documents[0] for row in sample_rows(data, {}, 1000)) == sorted(texts)
    assert sorted(row.documents[0] for row in read_good_rows(data, {})) == sorted(texts)


def test_bad_rows_are_skipped_up_to_the_allowed_fraction(tmp_path: Path):
    (tmp_path / "texts-0.jsonl").write_text('{"text": "good"}\n' * 30 + '{"text": 1}\n')
    data = TrainingDataSettings(paths=[str(tmp_path / "texts-0.jsonl")], kind="texts")
    assert len(list(read_good_rows(data, {}))) == len(sample_rows(data, {}, 99)) == 30
    strict = data.model_copy(update={"max_bad_fraction": 0.01})
    for read in (lambda: list(read_good_rows(strict, {})), lambda: sample_rows(strict, {}, 99)):
        with pytest.raises(QuarantineOverflowError, match=r"1 of 31 rows are bad, data\.max_bad_fraction is 0\.01"):
            read()


def test_data_without_a_row_is_rejected(tmp_path: Path):
    (tmp_path / "texts.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"data\.paths"):
        sample_rows(TrainingDataSettings(paths=[str(tmp_path / "texts.jsonl")], kind="texts"), {}, 9)
