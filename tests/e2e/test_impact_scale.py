"""The impact scale of nights that begin small, from the first night to the published index."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod import Searcher
from lsr_prod.encoding.run_records import read_waves
from lsr_prod.jobs.command import main
from lsr_prod.storage import Store

pytestmark = pytest.mark.usefixtures("ray_local")

TEXT = "the quick brown fox jumps over a lazy dog while rain falls on the deep sea "
DOCUMENTS = {f"d{i}": (TEXT * 2)[i % 40 : i % 40 + 12 + 4 * (i % 9)] for i in range(40)}


class Deployed:
    """A deployment in a folder, whose corpus is one file."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        self.folder = folder
        self.corpus = folder / "corpus.jsonl"
        table = {"bundle": str(bundle), "table": f"{folder}/table"}
        self.config = folder / "deployment.yaml"
        settings = {
            "source": {"paths": [str(self.corpus)]},
            "encode": {**table, "buckets": 2, "probe_documents": 20},
            "index": {**table, "output": f"{folder}/index", "shards": 1},
        }
        self.config.write_text(yaml.safe_dump(settings))

    def write(self, *names: str) -> None:
        self.corpus.write_text("".join(json.dumps({"_id": name, "text": DOCUMENTS[name]}) + "\n" for name in names))

    def run(self, capsys: pytest.CaptureFixture[str], job: str, *more: str) -> tuple[int, dict[str, Any], str]:
        """Run a job; returns its exit code, its result and everything that it printed."""
        code = main([job, "--config", str(self.config), *more])
        printed = capsys.readouterr()
        results = [line for line in printed.out.splitlines() if line.startswith("RESULT ")]
        return code, json.loads(results[-1][7:]) if results else {}, printed.out + printed.err


@pytest.mark.long
def test_nights_that_begin_empty_and_small_end_with_the_scale_of_all_documents(
    tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("once", "nights"):
        (tmp_path / name).mkdir()
    once, nights = Deployed(tmp_path / "once", tiny_bundle), Deployed(tmp_path / "nights", tiny_bundle)
    once.write(*DOCUMENTS)
    code, wanted, _ = once.run(capsys, "encode")
    assert (code, wanted["clipped"], wanted["clipped_share"]) == (0, 0, 0.0)
    nights.write()
    code, empty, printed = nights.run(capsys, "reindex")
    assert (code, empty["index.documents"]) == (0, 0), printed
    nights.write("d0", "d1", "d9")
    code, small, printed = nights.run(capsys, "reindex")
    assert (code, small["index.documents"]) == (0, 3), printed
    nights.write(*DOCUMENTS)
    code, whole, printed = nights.run(capsys, "reindex")
    assert (code, whole["index.documents"], whole["encode.clipped"]) == (0, len(DOCUMENTS), 0), printed
    assert whole["encode.impact_step"] == pytest.approx(wanted["impact_step"], rel=0.05)
    with Searcher.open(tmp_path / "nights" / "index") as searcher:
        assert searcher.search(DOCUMENTS["d9"], 3).hits[0].doc_id == "d9"


@pytest.mark.long
def test_clipped_weights_are_reported_and_refused_until_a_table_with_another_scale_is_published(
    tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Deployed(tmp_path, tiny_bundle)
    job.write(*DOCUMENTS)
    code, found, printed = job.run(capsys, "encode", "--encode.impact_step", "0.001")
    (wave,) = read_waves(Store(str(tmp_path / "table")), found["plan"])
    assert code == 0
    assert 0 < wave.clipped == found["clipped"] < wave.weights
    assert found["clipped_share"] == wave.clipped / wave.weights > found["max_clipped_share"] == 0.001
    (warning,) = [line for line in printed.splitlines() if '"event": "weights clipped"' in line]
    assert f'"clipped": {wave.clipped}, "weights": {wave.weights}' in warning
    assert f"{found['clipped_share']:.5f}, above" in " ".join(printed.split())
    code, _, printed = job.run(capsys, "reindex", "--encode.impact_step", "0.001")
    assert code == 1
    assert "of 11 gates" in printed
    assert "clipped_weights: " in printed
    new = str(tmp_path / "table-2")
    code, _, printed = job.run(capsys, "reindex", "--encode.table", new, "--index.table", new)
    assert code == 0, printed
    with Searcher.open(tmp_path / "index") as searcher:
        assert searcher.search(DOCUMENTS["d9"], 3).hits[0].doc_id == "d9"
        assert searcher.snapshot.version.table_uri.endswith("table-2")
