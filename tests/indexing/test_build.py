"""The index job: checks of the inputs, shards, versions and publications."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lsr_prod.cluster import workers
from lsr_prod.config import Deployment, IndexSettings
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError, LineageError, PublicationError
from lsr_prod.indexing import build, build_index, rollback
from lsr_prod.indexing.build import read_builds
from lsr_prod.jobs import index as jobs
from lsr_prod.operations.gates import Gatekeeper
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.disk import is_draft
from lsr_prod.storage.publications import current_publication
from tests.indexing.corpus import Doc, make_bundle, make_table, rows

pytestmark = pytest.mark.usefixtures("ray_local")

CORPUS = {
    f"doc{i:03d}": Doc({t: 1 + (i * t) % 255 for t in range(1, 2 + i % 7)}, f"text number {i} about locks")
    for i in range(90)
}


@pytest.fixture
def made(tmp_path):
    """Return a folder with a bundle and a table with 5 buckets."""
    make_bundle(tmp_path / "bundle", [f"t{i}" for i in range(20)])
    make_table(tmp_path / "table", CORPUS, tmp_path / "bundle", buckets=5, store_k=16)
    return tmp_path


def deployment(root: Path, **changes: object) -> Deployment:
    given = {"table": str(root / "table"), "bundle": str(root / "bundle"), "output": str(root / "index"), "shards": 2}
    return Deployment(index=IndexSettings(**{**given, "text_fields": ["text"], **changes}))


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_build_index_publishes_a_searchable_index_of_a_table(made):
    summary = build_index(deployment(made))
    assert (summary.documents, summary.shards, summary.shards_reused, summary.publication) == (90, 2, 0, 1)
    assert summary.postings == sum(len(doc.terms) for doc in CORPUS.values())
    parts = [getattr(summary, f"bytes_per_doc_{part}") for part in ("impacts", "forward", "tantivy", "docs")]
    assert sum(parts) == pytest.approx(summary.bytes_per_doc, abs=0.3)
    searcher = Searcher.open(made / "index", verify=True)
    assert summary.version == searcher.version.sha
    assert searcher.version.table_version == 1
    result = searcher.search_vector({"t1": 1.0, "t7": 2.0}, k=100, min_terms=2, fields=["text", "title"])
    assert {hit.doc_id for hit in result.hits} == {i for i, doc in CORPUS.items() if {1, 7} <= set(doc.terms)}
    assert all(hit.fields == {"text": CORPUS[hit.doc_id].text, "title": None} for hit in result.hits)
    assert searcher.bm25("lock 17", k=1).hits[0].doc_id == "doc017"
    json.dumps(summary.result())
    (record,) = read_builds(Store(str(made / "index")), last=9)
    assert record.summary == summary.result()
    assert [(shard["sha"], shard["bytes"], shard["reused"]) for shard in record.shards] == [
        (shard.sha, sum(file.size for file in shard.files), False) for shard in searcher.version.shards
    ]


def test_tables_of_equal_rows_give_the_same_shards(made):
    make_table(made / "copy", CORPUS, made / "bundle", buckets=5, store_k=16)
    first = build_index(deployment(made))
    second = build_index(deployment(made, table=str(made / "copy"), output=str(made / "other")))
    assert second.documents == 90
    versions = [Searcher.open(made / name).version for name in ("index", "other")]
    shards = [{shard.sha: shard.postings for shard in version.shards} for version in versions]
    assert shards[0] == shards[1]
    assert first.postings == second.postings
    with pytest.raises(ConfigError, match="table_version"):
        build_index(deployment(made, table=str(made / "copy"), table_version=2))


def test_table_that_a_node_lacks_is_refused(made, monkeypatch):
    for module in (workers, build):
        monkeypatch.setattr(module, "has_several_nodes", lambda: True)
    assert build_index(deployment(made)).publication == 1
    assert [path for path in (made / "index").iterdir() if is_draft(path.name)] == []
    next((made / "table").rglob("part-*.parquet")).unlink()
    with pytest.raises(ConfigError, match=r"^index\.table: .*part-.* is missing or differs on 1 of 1 nodes"):
        build_index(deployment(made, output=str(made / "other")))


def test_build_index_rejects_a_table_with_a_missing_part(made):
    next((made / "table").rglob("part-*.parquet")).unlink()
    with pytest.raises(ArtifactError, match=r"part-.*cannot be read"):
        build_index(deployment(made))


def test_repeated_build_changes_nothing(made):
    first = build_index(deployment(made))
    before = files(made / "index")
    second = build_index(deployment(made))
    assert (second.version, second.publication, second.shards_reused) == (first.version, 1, 2)
    assert files(made / "index") == before


def test_builds_of_one_table_give_one_version_with_equal_bytes(made):
    first, second = (build_index(deployment(made, output=str(made / name))) for name in ("one", "two"))
    assert first.version == second.version
    folders = [
        {k: v for k, v in files(made / name).items() if not k.startswith(("publications", "builds"))}
        for name in ("one", "two")
    ]
    assert folders[0] == folders[1]
    assert len(folders[0]) > 28


@pytest.mark.long
def test_full_build_reuses_shards_without_new_parts(made):
    build_index(deployment(made, shards=5, max_delta=0))
    more = {**CORPUS, "new": Doc({3: 9}, "one more")}
    (bucket,) = {row["bucket"] for row in rows({"new": more["new"]}, 5).to_pylist()}
    write_deltalake(str(made / "table"), rows({"new": more["new"]}, 5, bucket), mode="append")
    summary = build_index(deployment(made, shards=5, max_delta=0))
    assert (summary.mode, summary.documents, summary.shards_reused) == ("full", 91, 4)
    assert (summary.publication, summary.documents_rebuilt < 30) == (2, True)
    older = build_index(deployment(made, shards=5, max_delta=0, table_version=1, publish=False))
    assert (older.documents, older.shards_reused, older.publication) == (90, 5, 0)
    assert Searcher.open(made / "index").documents == 91


def test_rollback_publishes_an_older_version_again(made):
    first = build_index(deployment(made))
    build_index(deployment(made, dk=1))
    publication = rollback(made / "index", 1)
    assert (publication.number, publication.version, publication.note) == (3, first.version, "rollback to 1")
    assert Searcher.open(made / "index").version.sha == first.version
    with pytest.raises(PublicationError, match="no publication 9"):
        rollback(made / "index", 9)


def test_version_that_loses_too_many_documents_is_not_published(made):
    first = build_index(deployment(made))
    table = DeltaTable(str(made / "table"))
    table.delete("doc_id > 'doc020'")
    settings = deployment(made)
    with pytest.raises(PublicationError, match="max_shrink"):
        build_index(settings, Gatekeeper(settings))
    assert Searcher.open(made / "index").version.sha == first.version
    forced = Gatekeeper(settings, ["documents"], "the source was halved")
    assert build_index(settings, forced).publication == 2
    (overruled,) = current_publication(made / "index").forced
    assert (overruled.gate, overruled.reason) == ("documents", "the source was halved")


def test_version_with_a_damaged_shard_is_not_published(made):
    build_index(deployment(made, publish=False))
    path = next((made / "index" / "shards").rglob("forward_terms.npy"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DigestMismatchError, match="forward_terms"):
        build_index(deployment(made))
    assert not (made / "index" / "publications").exists()


def test_build_index_resumes_after_an_interrupted_attempt(made):
    build_index(deployment(made))
    shards = made / "index" / "shards"
    victim = sorted(shards.iterdir())[0]
    draft = shards / f".{victim.name}.0123.tmp"
    victim.rename(draft)
    (draft / "shard.json").unlink()
    shutil.rmtree(made / "index" / "publications")
    shutil.rmtree(made / "index" / "versions")
    summary = build_index(deployment(made))
    assert (summary.shards_reused, summary.publication) == (1, 1)
    assert Searcher.open(made / "index", verify=True).documents == 90


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"table": "nowhere"}, "index.table"),
        ({"bundle": "nowhere"}, "index.bundle"),
        ({"shards": 6}, "index.shards"),
        ({"dk": 17}, "index.dk"),
        ({"text_fields": ["body"]}, "index.text_fields"),
        ({"table_version": 7}, "index.table_version"),
    ],
)
def test_settings_that_do_not_fit_are_rejected_before_any_write(made, changes, field):
    before = files(made)
    with pytest.raises(ConfigError, match=field):
        build_index(deployment(made, **changes))
    assert files(made) == before


def test_table_with_16_bit_impacts_is_rejected(made):
    wide = {"lsr_prod.impact_bits": "16"}
    DeltaTable(made / "table").alter.set_table_properties(wide, raise_if_not_exists=False)
    with pytest.raises(ConfigError, match=r"index\.table: its impacts have 16 bits.*encode\.impact_bits 8 or 4"):
        build_index(deployment(made))


def test_folder_without_a_table_is_rejected(made):
    with pytest.raises(ConfigError, match=r"index\.table"):
        build_index(deployment(made, table=str(made / "bundle")))


def test_index_job_exits_2_with_one_line_for_a_bad_setting(made, capsys):
    (made / "config.yaml").write_text(
        f"index:\n  table: {made}/table\n  bundle: {made}/bundle\n  output: {made}/index\n"
    )
    before = files(made)
    assert jobs.build.run(["--config", str(made / "config.yaml"), "--index.shards", "9"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "lsr-prod index build: index.shards: 9 is more than the table has buckets; set at most 5"
    ]
    assert files(made) == before
    assert jobs.build.run(["--config", str(made / "config.yaml"), "--index.text_fields", "text"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["documents"], result["publication"]) == (90, 1)


def test_bundle_that_did_not_make_the_table_is_rejected(made):
    make_bundle(made / "other", [f"u{i}" for i in range(20)])
    with pytest.raises(LineageError, match="made by bundle"):
        build_index(deployment(made, bundle=str(made / "other")))
    assert not (made / "index").exists()


@pytest.mark.parametrize(
    "row",
    [
        {"terms": [1, 1], "impacts": [2, 2]},
        {"terms": [20], "impacts": [2]},
        {"terms": [-1], "impacts": [2]},
        {"terms": [1], "impacts": [256]},
        {"terms": [1], "impacts": [0]},
        {"terms": [1, 2], "impacts": [1]},
        {"doc_id": "doc001"},
    ],
)
def test_damaged_rows_stop_the_build(made, row):
    good = rows({"extra": Doc({1: 1})}, 5)
    bad = {**good.to_pylist()[0], **row}
    write_deltalake(str(made / "table"), pa.Table.from_pylist([bad], schema=good.schema), mode="append")
    with pytest.raises(ArtifactError):
        build_index(deployment(made, shards=1))
    assert not list((made / "index" / "shards").iterdir())
