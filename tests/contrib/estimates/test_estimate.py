"""The command ``lsr-prod table estimate``: figures of measured runs in, hours, storage, requests and cost out."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod.inference import BundleEncoder
from lsr_prod_contrib.estimates.command import estimate

ENCODE = {
    "documents": 1000, "rows_in": 1000, "encoded": 1000, "tokens": 100_000, "actors": 2, "threads_per_actor": 1,
    "seconds": 60.0, "encode_seconds": 50.0, "busy_share": 0.8, "source_bytes": 1_000_000, "table_bytes": 600_000,
}  # fmt: skip
INDEX = {"documents": 1000, "documents_rebuilt": 1000, "postings": 9, "bytes_per_doc": 400.0, "seconds": 20.0}
CLUSTER = {
    "name": "ten", "nodes": 5, "actors_per_node": 4, "speed": 2.0, "price_per_node_hour": 3.0,
    "storage_price_per_gb_month": 0.5, "request_prices": {"put": 1.0, "get": 0.1, "list": 1.0, "delete": 0},
}  # fmt: skip
CORPUS = ["--documents", "1e6", "--bytes", "1e9"]


def write(path: Path, *results: dict[str, Any]) -> str:
    path.write_text("".join(f"log line\nRESULT {json.dumps(result)}\n" for result in results))
    return str(path)


def write_cluster(path: Path, **changed: Any) -> str:
    fields = {name: value for name, value in {**CLUSTER, **changed}.items() if value is not None}
    path.write_text(yaml.safe_dump(fields))
    return str(path)


def estimate_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert estimate.run(argv) == 0, capsys.readouterr().err
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("RESULT ")]
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


def test_hours_are_the_fixed_part_and_tokens_by_the_rate_of_all_actors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run, cluster = write(tmp_path / "run", ENCODE), write_cluster(tmp_path / "cluster.yaml")
    found = estimate_of(capsys, *CORPUS, "--run", run, "--cluster", cluster)
    # 100,000 tokens in 50 s by two actors, 80 % busy: 1,250 tokens per second; twice that on the cluster.
    assert found["tokens"] == 100_000_000
    assert found["tokens_per_second_per_actor"] == pytest.approx(2500)
    assert found["hours"] == pytest.approx((10 + 1e8 / (2500 * 20 * 0.8)) / 3600)
    assert found["node_hours"] == pytest.approx(5 * found["hours"])
    assert found["storage_bytes"] == 600_000_000
    assert found["cost"] == pytest.approx(found["node_hours"] * 3 + found["request_cost"])
    assert found["cost_per_million_documents"] == pytest.approx(found["cost"])
    assert found["storage_cost_per_month"] == pytest.approx(0.3)
    origins = {name: found["origins"][name] for name in ("documents", "busy_share", "fixed_seconds", "nodes", "hours")}
    assert origins == {
        "documents": "given", "busy_share": "measured", "fixed_seconds": "measured", "nodes": "given",
        "hours": "computed",
    }  # fmt: skip


def test_without_cluster_the_estimate_is_for_the_measured_machine_without_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    found = estimate_of(capsys, "--documents", "1000", "--bytes", "1e6", "--run", write(tmp_path / "run", ENCODE))
    assert found["hours"] * 3600 == pytest.approx(60), "the measured run itself"
    assert "cost" not in found


def test_two_runs_of_different_sizes_give_the_fixed_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    larger = {**ENCODE, "documents": 4000, "rows_in": 4000, "encoded": 4000, "tokens": 400_000, "seconds": 220.0,
              "encode_seconds": 200.0, "source_bytes": 4_000_000, "table_bytes": 2_400_000}  # fmt: skip
    runs = ["--run", write(tmp_path / "a", ENCODE), "--run", write(tmp_path / "b", larger)]
    found = estimate_of(capsys, "--documents", "10000", "--bytes", "1e7", *runs)
    assert found["fixed_seconds"] == pytest.approx(60 - 160 / 3)
    assert found["hours"] * 3600 == pytest.approx(60 - 160 / 3 + 10 * 160 / 3)
    assert found["origins"]["fixed_seconds"] == "computed"


def test_the_output_of_reindex_gives_index_hours_and_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    both = {f"encode.{name}": value for name, value in ENCODE.items()}
    both |= {f"index.{name}": value for name, value in INDEX.items()}
    found = estimate_of(capsys, *CORPUS, "--run", write(tmp_path / "run", both))
    assert found["index_hours"] * 3600 == pytest.approx(20_000)
    assert found["hours"] == pytest.approx(found["encode_hours"] + found["index_hours"])
    assert found["storage_bytes"] == found["table_bytes"] + found["index_bytes"] == 1_000_000_000


def test_other_bytes_per_document_are_named_as_uncertain(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = write(tmp_path / "run", ENCODE)
    assert estimate_of(capsys, *CORPUS, "--run", run)["warnings"] == []
    (warning,) = estimate_of(capsys, "--documents", "1e6", "--bytes", "3e9", "--run", run)["warnings"]
    assert "3,000 bytes per document, the measured run 1,000" in warning
    assert "--sample" in warning


@pytest.mark.parametrize("stride", [None, 10])
def test_sample_counts_the_tokens_that_the_model_reads(
    tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str], stride: int | None
):
    texts = [f"the quick brown fox {'number ' * i}" for i in range(30)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": str(i), "body": text}) + "\n" for i, text in enumerate(texts)))
    config = {
        "source": {"paths": ["elsewhere"], "text_fields": ["body"], "stored_fields": []},
        "encode": {"bundle": str(tiny_bundle), "table": "unused", "max_length": 16, "passage_stride": stride},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    argv = ["--run", write(tmp_path / "run", ENCODE), "--config", str(tmp_path / "config.yaml")]
    found = estimate_of(capsys, "--documents", "60", "--bytes", "1e5", *argv, "--sample", str(corpus))
    cut = sum(map(len, BundleEncoder(tiny_bundle).token_ids(texts, kind="document", max_length=16)))
    assert found["tokens"] == 2 * cut if stride is None else found["tokens"] > 2 * cut
    assert "in a sample of 30" in found["notes"]["tokens"]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "--documents: it is required"),
        (["--documents", "0"], "--documents: '0' is not possible"),
        (["--documents", "1e999"], "--documents: '1e999' is not possible"),
        ([*CORPUS, "--run", "absent"], "--run: absent cannot be read"),
        ([*CORPUS, "--run", "empty"], "--run: empty has no line RESULT"),
        ([*CORPUS, "--run", "index"], "--run: there is no RESULT of an encode job"),
        ([*CORPUS, "--run", "nothing"], "--run: encoded is 0 in nothing"),
        ([*CORPUS, "--run", "older"], "--run: source_bytes is missing in older"),
        ([*CORPUS, "--run", "run", "--run", "faster"], "--run: the durations do not lie on a line"),
        ([*CORPUS, "--run", "run", "--run", "threads"], "--run: encode.threads_per_actor differs"),
        ([*CORPUS, "--run", "-", "--run", "-"], "--run: the standard input is named twice"),
        ([*CORPUS, "--run", "run", "--sample", "x"], "--sample: it needs the sections source and encode"),
        ([*CORPUS, "--run", "run", "--cluster", "absent"], "--cluster: absent cannot be read"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    problem: str,
):
    monkeypatch.chdir(tmp_path)
    write(Path("run"), ENCODE)
    write(Path("index"), INDEX)
    write(Path("nothing"), {**ENCODE, "encoded": 0})
    write(Path("older"), {name: value for name, value in ENCODE.items() if name != "source_bytes"})
    write(Path("faster"), {**ENCODE, "tokens": 900_000, "seconds": 20.0})
    write(Path("threads"), {**ENCODE, "threads_per_actor": 4})
    Path("empty").write_text("nothing\n")
    assert estimate.run(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert problem in line


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"nodes": 0}, "--cluster.nodes: 0 is not possible"),
        ({"speed": None}, "--cluster.speed: it is required"),
        ({"price_per_hour": 3}, "--cluster.price_per_hour: there is no such field"),
        ({"request_prices": {"put": 1.0}}, "the price of get, list, delete is missing"),
        ({"price_per_node_hour": float("nan")}, "--cluster.price_per_node_hour: nan is not possible"),
        ({"request_prices": {**CLUSTER["request_prices"], "put": -1}}, "a price is 0 or more"),
    ],
)
def test_wrong_field_of_the_cluster_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], problem: str
):
    cluster = write_cluster(tmp_path / "cluster.yaml", **changed)
    assert estimate.run([*CORPUS, "--run", write(tmp_path / "run", ENCODE), "--cluster", cluster]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
