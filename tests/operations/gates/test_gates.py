"""Every gate refuses a planted bad version with its sentence, and passes a good one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from lsr_prod.config import Deployment
from lsr_prod.corpus.filelist import list_files
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.encoding.tables import open_table
from lsr_prod.encoding.tables.quarantine_rows import BadRowWriter, create_quarantine
from lsr_prod.errors import ArtifactError, ConfigError, PublicationError, SourceError
from lsr_prod.indexing.publish import Candidate
from lsr_prod.operations.gates import GATES, Gatekeeper, GateReport, read_report
from lsr_prod.operations.gates.report import Versions, count_impacts
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import current_publication
from tests.encoding.tables.deletions import delete_ids
from tests.indexing.corpus import Doc, encode_corpus, make_bundle, make_index, make_table
from tests.indexing.increments import Increment, change_table
from tests.indexing.publishing import publish

TEXTS = {
    f"d{i}": text
    for i, text in enumerate(
        ["the quick brown fox", "a lazy dog sleeps", "rain over the sea", "a fox and a dog", "the sea is deep"] * 4
    )
}


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> tuple[Path, IndexVersion, IndexVersion]:
    """An index whose current version is good, and a version in which every document has the vector of another one."""
    folder = tmp_path_factory.mktemp("gates") / "index"
    good = encode_corpus(tiny_bundle, TEXTS)
    names = list(good)
    shifted = {name: good[names[i - 1]] for i, name in enumerate(names)}
    bad = {**dict(list(shifted.items())[:8]), "empty": Doc({}, "nothing")}
    versions = [make_index(folder, corpus, bundle=tiny_bundle) for corpus in (good, bad, good)]
    return folder, versions[0], versions[1]


def settings(folder: Path, **limits: Any) -> Deployment:
    index = {"table": str(folder / "table"), "bundle": "b", "output": str(folder)}
    return Deployment.model_validate(
        {"index": index, "gates": {"max_impact_error": None, "max_clipped_share": None, **limits}}
    )


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def verdict(indexes: tuple[Path, IndexVersion, IndexVersion], gate: str, **limits: Any) -> tuple[str, str]:
    """Verdict and sentence for the bad version."""
    folder, good, bad = indexes
    candidate = Candidate(folder, bad, good, True)
    result = GATES[gate](Versions(candidate, settings(folder, **limits)))
    same = GATES[gate](Versions(Candidate(folder, good, good, True), settings(folder, **limits)))
    assert same.verdict == "passed" or gate in ("quarantine", "impact_error", "clipped_weights", "latency"), same
    return result.verdict, result.sentence


def test_gates_are_those_that_are_documented():
    assert tuple(GATES) == (
        "documents", "quarantine", "empty", "size", "impact_error", "clipped_weights", "golden", "overlap", "quality",
        "latency", "completeness",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({}, "9 documents in place of 20, above gates.max_shrink"),
        ({"min_documents": 10}, "9 documents, fewer than gates.min_documents"),
    ],
)
def test_lost_documents_are_refused(indexes, limits, sentence):
    assert verdict(indexes, "documents", **limits) == ("refused", sentence)


def test_growth_is_refused(indexes):
    folder, good, bad = indexes
    result = GATES["documents"](Versions(Candidate(folder, good, bad, True), settings(folder, max_growth=0.5)))
    assert (result.verdict, result.sentence) == ("refused", "20 documents in place of 9, above gates.max_growth")


def test_documents_without_a_term_are_refused(indexes):
    assert verdict(indexes, "empty", max_empty_share=0.05) == (
        "refused",
        "1 of 9 documents have no term, above gates.max_empty_share = 0.05",
    )


def test_large_shards_are_refused(indexes):
    _, good, bad = indexes
    bytes_of = [sum(sum(s.bytes_by_part.values()) for s in each.shards) / each.documents for each in (good, bad)]
    found, sentence = verdict(indexes, "size", max_bytes_per_document=sum(bytes_of) / 2)
    assert found == "refused"
    assert "bytes per document, above gates.max_bytes_per_document" in sentence


def test_missed_golden_documents_are_refused(indexes, tmp_path):
    rows = [{"_id": "q1", "text": "the sea is deep", "must": ["d4"]}, {"_id": "q2", "text": "the sea", "must": ["d9"]}]
    found, sentence = verdict(indexes, "golden", golden_queries=write(tmp_path, "golden.jsonl", rows))
    assert found == "refused"
    assert sentence.endswith("golden queries find all of their documents; missing q2: d9, below gates.min_golden = 1")


def test_another_top_k_is_refused(indexes, tmp_path):
    queries = write(tmp_path, "canaries.jsonl", [{"_id": i, "text": text} for i, text in TEXTS.items()])
    found, sentence = verdict(indexes, "overlap", canary_queries=queries, min_overlap=0.9, canary_k=4)
    assert found == "refused"
    assert "of the current top 4 of 20 queries are found again, below gates.min_overlap = 0.9" in sentence
    assert "; changed most: d" in sentence
    assert sentence.endswith(" …")


def test_overlap_is_the_share_of_current_hits_that_are_found_again(indexes, tmp_path):
    folder, good, bad = indexes
    rows = [{"_id": i, "text": text} for i, text in TEXTS.items()]
    queries = write(tmp_path, "canaries.jsonl", [*rows, {"_id": "nothing", "text": ""}])
    versions = Versions(
        Candidate(folder, bad, good, True), settings(folder, canary_queries=queries, min_overlap=0.0, canary_k=4)
    )
    result = GATES["overlap"](versions)
    shares = {}
    for row in rows:
        now, before = (
            {hit.doc_id for hit in each.search(row["text"], 4).hits} for each in (versions.searcher, versions.current)
        )
        shares[row["_id"]] = len(now & before) / len(before)
    assert result.measured == pytest.approx(np.mean(list(shares.values())))
    assert shares[result.queries[0]] == min(shares.values())
    report = GateReport("v", "c", "now", (result,))
    assert GateReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    before = {
        **report.to_json(),
        "results": [{k: v for k, v in report.to_json()["results"][0].items() if k != "queries"}],
    }
    assert GateReport.from_json(before).results[0].queries == ()  # a report of an earlier release


def test_worse_ranking_is_refused(indexes, tmp_path):
    queries = write(tmp_path, "queries.jsonl", [{"_id": i, "text": text} for i, text in TEXTS.items()])
    qrels = tmp_path / "qrels.tsv"
    lines = [f"{i}\t{j}\t1" for i, text in TEXTS.items() for j, other in TEXTS.items() if text == other]
    qrels.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n", encoding="utf-8")
    files = {"judged_queries": queries, "judged_qrels": str(qrels)}
    found, sentence = verdict(indexes, "quality", **files, max_loss=0.05)
    assert found == "refused"
    assert "over 20 judged queries (p = 0.000), a loss above gates.max_loss" in sentence
    assert verdict(indexes, "quality", **files, max_loss=1.0)[0] == "passed"


def test_judgments_of_another_corpus_are_refused(indexes, tmp_path):
    queries = write(tmp_path, "queries.jsonl", [{"_id": i, "text": text} for i, text in TEXTS.items()])
    (tmp_path / "qrels").write_text("".join(f"{i} 0 other-{i} 1\n" for i in TEXTS))
    folder, good, _ = indexes
    limits = {"judged_queries": queries, "judged_qrels": str(tmp_path / "qrels"), "max_loss": 1.0}
    found = GATES["quality"](Versions(Candidate(folder, good, good, True), settings(folder, **limits)))
    assert found.verdict == "refused"
    assert "qrels judges as relevant is in the index, for example 'other-" in found.sentence


def test_judgments_that_can_show_nothing_are_refused(indexes, tmp_path):
    queries = write(tmp_path, "queries.jsonl", [{"_id": i, "text": text} for i, text in TEXTS.items()])
    folder, good, _ = indexes
    files = {"judged_queries": queries, "judged_qrels": str(tmp_path / "qrels"), "max_loss": 0.0}

    def found(judgments: str) -> tuple[str, str]:
        (tmp_path / "qrels").write_text(judgments)
        result = GATES["quality"](Versions(Candidate(folder, good, good, True), settings(folder, **files)))
        return result.verdict, result.sentence

    verdict, sentence = found("".join(f"{i} 0 {i} 0\n" for i in TEXTS))
    assert (verdict, "judges as relevant is in the index" in sentence) == ("refused", True)
    few = "".join(f"{i} 0 {i} 1\n" for i in list(TEXTS)[:4])  # p of four losses is 1 / 16
    assert found(few) == ("refused", "4 judged queries can show no loss at gates.significance = 0.05; judge more")
    assert found(f"{few}d4 0 d4 1\n")[0] == "passed"


def test_slow_answers_are_refused(indexes, tmp_path):
    queries = write(tmp_path, "canaries.jsonl", [{"_id": "q", "text": "fox"}])
    found, sentence = verdict(indexes, "latency", canary_queries=queries, max_p95_ms=1e-6)
    assert found == "refused"
    assert sentence.startswith("p95 ")
    assert verdict(indexes, "latency", canary_queries=queries, max_p95_ms=1e6)[0] == "passed"


def result_of(gate: str, indexes, table: str, files: pa.Table | None = None, **limits: float) -> Any:
    folder, good, _ = indexes
    settings_of = {"index": {"table": table, "bundle": "b", "output": str(folder)}, "gates": limits}
    newest = open_table(Store(table))
    candidate = replace(good, table_version=newest.version if newest else 0)
    return GATES[gate](
        Versions(Candidate(folder, candidate, good, True), Deployment.model_validate(settings_of), files)
    )


def test_impacts_that_are_small_for_their_unit_are_refused(indexes, tmp_path):
    bundle = tmp_path / "bundle"
    make_bundle(bundle, ["a", "b"])
    table = make_table(tmp_path / "table", {"d": Doc({1: 2}, "x"), "e": Doc({0: 1, 1: 1}, "x")}, bundle)
    refused = result_of("impact_error", indexes, table, max_impact_error=0.1)
    assert (refused.verdict, refused.measured) == ("refused", 0.25 / (4 / 3))
    assert refused.sentence == "the mean impact is off by 0.1875, above gates.max_impact_error = 0.1"
    default = result_of("impact_error", indexes, table)
    assert (default.verdict, default.limit) == ("passed", 0.2)
    measured = {"lsr_prod.probe_documents": "9", "lsr_prod.impact_error": (0.3).hex()}
    open_table(Store(table)).commit([], [], app="p", version=0, epoch=1, properties=measured)
    assert result_of("impact_error", indexes, table).measured == 0.3  # that of the probe is larger
    measured["lsr_prod.impact_error"] = (0.0).hex()
    open_table(Store(table)).commit([], [], app="p", version=1, epoch=1, properties=measured)
    assert result_of("impact_error", indexes, table, max_impact_error=0.0).verdict == "passed"  # exact integers
    nothing = make_table(tmp_path / "nothing", {}, bundle)
    assert result_of("impact_error", indexes, nothing, max_impact_error=0.0).verdict == "passed"


def test_clipped_weights_of_all_plans_are_refused(indexes, tmp_path):
    bundle = tmp_path / "bundle"
    make_bundle(bundle, ["a", "b"])
    table = make_table(tmp_path / "table", {f"d{i}": Doc({0: 254, 1: 7}, "x") for i in range(99)}, bundle)
    assert result_of("clipped_weights", indexes, table, max_clipped_share=0.0).verdict == "passed"
    change_table(tmp_path, Increment({f"e{i}": Doc({0: 255, 1: 255}, "x") for i in range(3)}, frozenset()))
    refused = result_of("clipped_weights", indexes, table)
    assert (refused.verdict, refused.limit, refused.measured) == ("refused", 0.001, 6 / 204)
    sentence = "0.0294 of 204 weights are clipped to the largest impact, above gates.max_clipped_share = 0.001"
    assert refused.sentence == sentence
    delete_ids(Store(table), ["e0", "e1", "e2"])
    assert result_of("clipped_weights", indexes, table).verdict == "passed"
    with pytest.raises(ArtifactError, match="is not a table"):
        result_of("clipped_weights", indexes, str(tmp_path / "none"))
    assert result_of("clipped_weights", indexes, table, max_clipped_share=None).verdict == "off"


@pytest.mark.parametrize(("parts", "documents"), [(256, 1 << 16), (4, 8), (1, 1)])
def test_impacts_are_counted_over_a_sample_of_all_parts(tmp_path, parts, documents):
    make_bundle(tmp_path / "bundle", ["a", "b"])
    corpus = {f"d{i}": Doc({0: i % 200 + 1}, "x") for i in range(300)}
    table = open_table(Store(make_table(tmp_path / "table", corpus, tmp_path / "bundle", buckets=16)))
    found = count_impacts(table, parts=parts, documents=documents)
    assert found.weights == found.documents == min(documents, 300)
    assert len(found.by_impact) == 256
    if documents > 300:
        assert found.mean == pytest.approx(np.mean([i % 200 + 1 for i in range(300)]))


def test_bad_rows_are_refused(indexes, tmp_path):
    bundle = tmp_path / "bundle"
    make_bundle(bundle, ["a", "b"])
    table = make_table(tmp_path / "table", {"d": Doc({1: 2}, "x")}, bundle)
    without = result_of("quarantine", indexes, table, max_quarantine_share=0.1)
    assert "there is no quarantine" in without.sentence
    make_table(tmp_path / "table_quarantine", {f"d{i}": Doc({1: 2}, "x") for i in range(5)}, bundle)
    refused = result_of("quarantine", indexes, table, max_quarantine_share=0.1)
    assert refused.sentence == "5 bad rows beside 20 documents, above gates.max_quarantine_share = 0.1"
    assert result_of("quarantine", indexes, table, max_quarantine_share=0.2).verdict == "passed"


def test_bad_rows_of_files_that_were_replaced_do_not_count(indexes, tmp_path):
    make_bundle(tmp_path / "bundle", ["a", "b"])
    table = make_table(tmp_path / "table", {"d": Doc({1: 2}, "x")}, tmp_path / "bundle")
    listed = [SourceFile("/c", "a.jsonl", "jsonl", 9, f"night {night}") for night in range(2)]
    bad = Store(f"{table}_quarantine")
    for number, file in enumerate([*listed, listed[0]]):  # the first one returns
        writer, night = BadRowWriter(bad, plan := f"{number}" * 64, 0), listed.index(file)
        for position in range(night + 1):
            writer.add(BadRow("broken_json", "", None, "{"), ordinal=0, key=file.key, source="a", position=position)
        writer.flush()
        parts = [(part, {"plan": plan, "wave": "0"}) for part in writer.parts]
        create_quarantine(bad).commit(parts, [], app=plan, version=0, epoch=1)
    assert result_of("quarantine", indexes, table, max_quarantine_share=1.0).sentence.startswith("4 bad rows")
    for night, file in enumerate(listed):
        found = result_of("quarantine", indexes, table, list_files([file]), max_quarantine_share=1.0)
        assert found.sentence.startswith(f"{night + 1} bad rows")


def test_refused_version_is_kept_with_its_report_and_can_be_forced(indexes):
    folder, good, bad = indexes
    assert current_publication(folder).version == good.sha
    deployment = settings(folder, max_empty_share=0.05)
    with pytest.raises(PublicationError, match=r"is refused by 2 of 11 gates \(documents: 9 documents in place of 20"):
        publish(folder, bad.sha, inspect=Gatekeeper(deployment))
    assert current_publication(folder).version == good.sha
    assert read_version(folder, bad.sha) == bad
    (report,) = [read_report(Store(str(folder)), path.stem) for path in (folder / "reports").iterdir()]
    assert [result.gate for result in report.refused] == ["documents", "empty"]
    with pytest.raises(PublicationError, match=r"is refused by 1 of 11 gates \(empty"):
        publish(folder, bad.sha, inspect=Gatekeeper(deployment, ["documents"], "the source was divided"))
    publication = publish(folder, bad.sha, inspect=Gatekeeper(deployment, ["documents", "empty"], "as planned"))
    assert [(one.gate, one.reason) for one in publication.forced] == [
        ("documents", "as planned"),
        ("empty", "as planned"),
    ]
    assert read_report(Store(str(folder)), publication.report).reason == "as planned"


@pytest.mark.parametrize(
    ("force", "reason", "problem"),
    [
        (["nothing"], "x", "--force: there is no gate 'nothing'"),
        (["golden"], " ", "--reason: a forced gate needs a reason"),
        ([], "x", "--reason: no gate is forced"),
    ],
)
def test_force_needs_a_gate_and_a_reason(force, reason, problem, tmp_path):
    with pytest.raises(ConfigError, match=problem):
        Gatekeeper(settings(tmp_path), force, reason)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"golden_queries": "/nowhere.jsonl"}, "gates.golden_queries: there is no file at /nowhere.jsonl"),
        ({"canary_queries": "/nowhere", "max_p95_ms": 9}, "gates.canary_queries: there is no file"),
        (
            {"judged_queries": "/nowhere", "judged_qrels": "/nowhere", "max_loss": 0.1},
            "gates.judged_queries: there is no file",
        ),
        (
            {"judged_queries": __file__, "judged_qrels": __file__, "max_loss": 0.1, "measure": "nDGC@10"},
            "gates.measure: a measure is unknown",
        ),
    ],
)
def test_measure_and_files_are_checked_before_any_work(limits, problem):
    with pytest.raises(ConfigError, match=problem):
        Gatekeeper(Deployment.model_validate({"gates": limits}))


@pytest.mark.parametrize("limit", ["min_overlap", "max_p95_ms", "max_loss"])
def test_limit_without_its_queries_is_refused(limit):
    with pytest.raises(ConfigError, match=f"gates.{limit} needs it"):
        Deployment.model_validate({"gates": {limit: 0.5}})


@pytest.mark.parametrize(
    ("limits", "need"),
    [
        ({"min_golden": 0.9}, "golden_queries"),
        ({"canary_k": 5}, "canary_queries"),
        ({"significance": 0.01}, "max_loss"),
        ({"max_lost": None, "verify": "all"}, "max_lost"),
        ({"threshold": 0.4}, "queries to answer"),
    ],
)
def test_limit_that_no_gate_reads_is_refused(limits, need):
    with pytest.raises(ValidationError, match=f"has no effect without {need}"):
        Deployment.model_validate({"gates": limits})


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (["canary_queries"], r"gates\.min_overlap or gates\.max_p95_ms"),
        (["judged_queries", "judged_qrels"], r"gates\.max_loss"),
        (["judged_qrels"], r"gates\.max_loss"),
    ],
)
def test_queries_without_a_limit_are_refused(files, limits):
    with pytest.raises(ConfigError, match=rf"^gates\.{files[0]}: no gate reads it, .*; set {limits}, or remove it"):
        Deployment.model_validate({"gates": dict.fromkeys(files, "queries.jsonl")})


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"_id": "q", "text": "x"}', '{"_id": "q", "text": "x", "must": []}'])
def test_broken_golden_queries_are_an_error(indexes, tmp_path, line):
    folder, good, _ = indexes
    path = tmp_path / "golden.jsonl"
    path.write_text(line and f"{line}\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"golden\.jsonl"):
        GATES["golden"](Versions(Candidate(folder, good, good, True), settings(folder, golden_queries=str(path))))
