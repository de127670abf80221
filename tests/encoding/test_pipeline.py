"""The pipeline of waves, verified by the tables of real jobs."""

from pathlib import Path

import pytest

from lsr_prod.encoding import encode_corpus
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.table import PLAN_PROPERTY
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store
from lsr_prod.tables import open_table
from tests.encoding.test_encode import deployment, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_local")

FILES = 4
FILLER = "x" * 200_000  # of a field that is not read: four documents of a file are a wave of 1 MB


def write_corpus(folder: Path) -> Path:
    """Write files of one wave each; each repeats an id of every earlier file with another text."""
    for number in range(FILES):
        again = [{"_id": f"d{earlier}-0", "text": f"again in {number}", "filler": ""} for earlier in range(number)]
        new = [{"_id": f"d{number}-{i}", "text": f"the fox {number} {i}", "filler": FILLER} for i in range(4)]
        write_jsonl(folder / f"{number}.jsonl", [*new, *again])
    return folder


def test_waves_of_a_pipeline_give_the_table_of_a_single_wave(tmp_path: Path, tiny_bundle: Path):
    corpus = write_corpus(tmp_path / "corpus")
    settings = {"max_bad_fraction": 1.0}
    several = encode_corpus(deployment(tiny_bundle, tmp_path / "a", corpus, wave_megabytes=1, **settings))
    one = encode_corpus(deployment(tiny_bundle, tmp_path / "b", corpus, wave_megabytes=256, **settings))
    assert (several.waves, one.waves) == (FILES, 1)
    assert several.table_digest == one.table_digest
    assert several.quarantined_by_reason == one.quarantined_by_reason == {"duplicate_id": FILES * (FILES - 1) // 2}


def test_waves_before_a_wave_that_fails_are_committed(tmp_path: Path, tiny_bundle: Path):
    corpus = write_corpus(tmp_path / "corpus")
    for number in range(1, FILES - 1):  # the last file alone repeats ids
        path = corpus / f"{number}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]))
    settings = deployment(tiny_bundle, tmp_path / "table", corpus, wave_megabytes=1, on_duplicate="error")
    with pytest.raises(SourceError, match="have the id of another row"):
        encode_corpus(settings)
    table = open_table(Store(str(tmp_path / "table")))
    assert table is not None
    assert waves_done(table, table.properties[PLAN_PROPERTY]) == FILES - 1
