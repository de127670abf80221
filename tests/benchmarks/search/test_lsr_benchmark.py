"""The adapter for lsr-benchmark on embeddings in its layout, against scores of dense matrices."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.lsr_benchmark import main
from lsr_prod.encoding.tables.impact_scale import impact_scale
from lsr_prod.storage.formats.table_format import quantize


def write_embeddings(folder: Path, kind: str, rows: dict[str, dict[str, int]], *, tokens: bool) -> None:
    (folder / kind).mkdir(parents=True)
    terms = [term for row in rows.values() for term in row]
    np.savez(
        folder / kind / f"{kind}-embeddings.npz",
        data=np.array([weight for row in rows.values() for weight in row.values()], np.float32),
        indices=np.array(terms) if tokens else np.array([int(term[1:]) for term in terms], np.int64),
        indptr=np.cumsum([0, *map(len, rows.values())]),
    )
    (folder / kind / f"{kind}-ids.txt").write_text("\n".join(rows) + "\n")


def random_rows(prefix: str, count: int, seed: int) -> dict[str, dict[str, int]]:
    rng = np.random.default_rng(seed)
    return {
        f"{prefix}{i}": {f"t{t}": int(rng.integers(1, 256)) for t in sorted(rng.choice(40, 6, replace=False))}
        for i in range(count)
    }


def in_8_bits(rows: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    weights = np.array([weight for row in rows.values() for weight in row.values()], np.float32)
    step = impact_scale(weights, 8, documents=len(rows)).step
    impacts = iter(quantize(weights, step, 8)[0].tolist())
    return {row_id: {term: next(impacts) * step for term in row} for row_id, row in rows.items()}


@pytest.mark.parametrize("tokens", [True, False])
def test_run_has_the_documents_and_scores_of_brute_force(tmp_path, capsys, tokens):
    documents, queries = random_rows("d", 200, 1), random_rows("q", 7, 2)
    queries["q0"]["t99"] = 5  # no document has this term
    documents["empty"], queries["nothing"] = {}, {}
    write_embeddings(tmp_path / "made", "doc", documents, tokens=tokens)
    write_embeddings(tmp_path / "made", "query", queries, tokens=tokens)
    out = tmp_path / "out"
    assert main(["--dataset", "made", "--embedding", str(tmp_path / "made"), "--output", str(out), "--k", "5"]) == 0
    result = json.loads(capsys.readouterr().out.removeprefix("RESULT "))
    assert (result["documents"], result["queries"]) == (201, 8)
    assert json.loads((out / "measurements.json").read_text()) == result
    with gzip.open(out / "run.txt.gz", "rt") as file:
        lines = [line.split() for line in file]
    assert {line[1] for line in lines} == {"Q0"}
    quantized = in_8_bits(documents)
    for query, row in queries.items():
        scores = {d: sum(row.get(term, 0) * weight for term, weight in doc.items()) for d, doc in quantized.items()}
        best = sorted((-score, d) for d, score in scores.items() if score)[:5]
        found = [line for line in lines if line[0] == query]
        assert [int(line[3]) for line in found] == list(range(1, len(best) + 1))
        np.testing.assert_allclose([float(line[4]) for line in found], [-score for score, _ in best], rtol=1e-6)
        assert [line[2] for line in found] == [d for _, d in best]


def test_folder_without_embeddings_and_a_wrong_number_of_ids_are_one_line(tmp_path):
    arguments = ["--dataset", "made", "--embedding", str(tmp_path), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match=r"has no doc-embeddings\.npz"):
        main(arguments)
    write_embeddings(tmp_path, "doc", random_rows("d", 3, 1), tokens=False)
    (tmp_path / "doc" / "doc-ids.txt").write_text("d0\n")
    with pytest.raises(SystemExit, match="3 vectors and 1 ids"):
        main(arguments)
