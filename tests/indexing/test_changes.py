"""Changes that are found between two versions of a table equal the changes that were made."""

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.encoding.tables import TableFile, open_table
from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.changes import PartChange, changed_parts, changed_rows, find_rows, row_schema
from lsr_prod.operations.maintenance import compact
from lsr_prod.storage import Store
from tests.indexing.corpus import FIELDS, Doc, make_bundle, make_table
from tests.indexing.increments import Increment, buckets_of, change_table, make_world, random_doc, random_increment

DICE = random.Random(4)
CORPUS = {**{f"doc{i:03d}": random_doc(DICE) for i in range(60)}, "doc005": Doc({1: 200, 2: 7, 9: 3}, "five")}


def compare(store: Store, old: int, new: int) -> tuple[set[str], set[str], int]:
    before, after = open_table(store, old), open_table(store, new)
    schema = row_schema(after, FIELDS)
    found = [changed_rows(store, part, schema) for part in changed_parts(before, after)]
    for change in found:
        for ids in (change.upserts, change.deletes):
            assert ids.type == pa.large_string()
            assert ids.to_pylist() == sorted(ids.to_pylist())
            assert buckets_of(ids.to_pylist()) <= {change.bucket}
    upserts, deletes = ([i for one in found for i in getattr(one, name).to_pylist()] for name in ("upserts", "deletes"))
    assert len(upserts) == len(set(upserts))
    return set(upserts), set(deletes), sum(one.replaced for one in found)


def test_changed_rows_of_an_increment_are_found(tmp_path):
    make_world(tmp_path, CORPUS)
    increment = random_increment(DICE, CORPUS, 0.05, "new")
    same = {i: CORPUS[i] for i in sorted(set(CORPUS) - set(increment.upserts) - set(increment.deletes))[:5]}
    change_table(tmp_path, Increment({**increment.upserts, **same}, increment.deletes))
    store = Store(str(tmp_path / "table"))
    assert compare(store, 1, 2) == (set(increment.upserts), set(increment.deletes), 3)
    assert compare(store, 2, 1) == (
        {*increment.deletes, *(set(increment.upserts) & set(CORPUS))},
        set(increment.upserts) - set(CORPUS),
        3,
    )
    assert compare(store, 2, 2) == (set(), set(), 0)


def test_changed_rows_are_found_in_an_object_store(tmp_path, s3_options):
    make_bundle(tmp_path / "bundle", [f"t{i}" for i in range(64)])
    uri = f"s3://lsr/{tmp_path.name}"
    store = Store(uri, s3_options)
    make_table(tmp_path / "local", CORPUS, tmp_path / "bundle", store_k=16)
    for name in Store(str(tmp_path / "local")).names():
        store.put_new(name, (tmp_path / "local" / name).read_bytes())
    change_table(uri, Increment({"doc001": Doc({1: 1})}, ["doc002"]), options=s3_options)
    assert compare(store, 1, 2) == ({"doc001"}, {"doc002"}, 1)


def test_rows_moved_to_other_parts_are_not_changes(tmp_path):
    make_world(tmp_path, CORPUS)
    store = Store(str(tmp_path / "table"))
    change_table(tmp_path, Increment({f"more{i}": Doc({1: 9}) for i in range(20)}))
    compact(store, 1_000_000)
    newest = open_table(store).version
    assert changed_parts(open_table(store, 2), open_table(store, newest))
    assert compare(store, 2, newest) == (set(), set(), 0)
    assert compare(store, 1, newest) == ({f"more{i}" for i in range(20)}, set(), 0)


@pytest.mark.parametrize(
    "changed",
    [
        replace(CORPUS["doc005"], text="another text"),
        replace(CORPUS["doc005"], terms={}),
        replace(CORPUS["doc005"], terms={**CORPUS["doc005"].terms, 63: 1}),
        replace(CORPUS["doc005"], terms={t: 256 - v for t, v in CORPUS["doc005"].terms.items()}),
    ],
)
def test_difference_in_any_field_is_a_change(tmp_path, changed):
    make_world(tmp_path, CORPUS)
    change_table(tmp_path, Increment({"doc005": changed, "doc006": CORPUS["doc006"]}))
    assert compare(Store(str(tmp_path / "table")), 1, 2) == ({"doc005"}, set(), 1)


def test_changed_rows_reports_a_missing_part(tmp_path):
    make_world(tmp_path, CORPUS)
    change_table(tmp_path, Increment({"doc005": Doc({1: 1})}))
    store = Store(str(tmp_path / "table"))
    (part,) = changed_parts(open_table(store, 1), open_table(store, 2))
    (tmp_path / "table" / part.removed[0].path).unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        changed_rows(store, part, row_schema(open_table(store), FIELDS))


@pytest.mark.long
def test_bucket_with_more_than_two_gigabytes_of_text_is_compared(monkeypatch: pytest.MonkeyPatch):
    """The chunks of the text share their memory; together they have 2.2 GB."""
    count, chunks = 20, 22
    text = pa.array(["x" * 5_000_000] * count)

    def part(store: Store, file: TableFile, schema: pa.Schema) -> pa.Table:
        ids = [pa.array([f"{chunk:02}-{i:02}" for i in range(count)]) for chunk in range(chunks)]
        texts = [text] * chunks
        if file.path == "new":
            ids[7] = pa.array([f"new-{i}" for i in range(count)])
            texts[9] = pa.array(["changed", *text[1:].to_pylist()])
        vectors = pa.array([[1]] * (count * chunks), pa.list_(pa.int32()))
        columns = [pa.chunked_array(ids), vectors, pa.chunked_array(texts)]
        return pa.table(columns, names=["doc_id", "terms", "text"])

    monkeypatch.setattr("lsr_prod.indexing.changes.read_part", part)
    schema = pa.schema([("doc_id", pa.string()), ("terms", pa.list_(pa.int32())), ("text", pa.string())])
    files = [TableFile(name, 1, count * chunks, {"bucket": "0"}) for name in ("old", "new")]
    change = changed_rows(Store("/nowhere"), PartChange(0, (files[0],), (files[1],)), schema)
    assert change.upserts.to_pylist() == ["09-00", *sorted(f"new-{i}" for i in range(count))]
    assert change.deletes.to_pylist() == [f"07-{i:02}" for i in range(count)]
    assert change.replaced == 1


def test_find_rows_returns_rows_of_known_ids(tmp_path):
    make_world(tmp_path, CORPUS, buckets=1)
    table = open_table(Store(str(tmp_path / "table")))
    ids = pa.array(["doc003", "doc050", "unknown"], pa.large_string())
    found = find_rows(table.store, table.files(), row_schema(table, FIELDS), ids)
    assert found["doc_id"].to_pylist() == ["doc003", "doc050"]
    assert {found.schema.field(name).type for name in ("doc_id", *FIELDS)} == {pa.large_string()}
    assert found["text"].to_pylist() == [CORPUS["doc003"].text, CORPUS["doc050"].text]
    assert find_rows(table.store, table.files(), row_schema(table, FIELDS), ids[2:]).num_rows == 0


TERMS = st.dictionaries(st.integers(0, 63), st.integers(1, 255), max_size=4)
DOCS = st.dictionaries(st.sampled_from("abcdefgh"), st.builds(Doc, TERMS, st.sampled_from(["", "x", "ß"])), max_size=8)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(DOCS, DOCS)
def test_changes_between_random_corpora_equal_the_expected_ones(tmp_path_factory, old, new):
    folder = tmp_path_factory.mktemp("tables")
    make_world(folder, old, buckets=4)
    change_table(folder, Increment(new, set(old) - set(new)))
    changed = {i for i, d in new.items() if i not in old or list(old[i].terms.items()) != list(d.terms.items())}
    changed |= {i for i, d in new.items() if i in old and old[i].text != d.text}
    expected = (changed, set(old) - set(new), len(changed & set(old)))
    assert compare(Store(str(folder / "table")), 1, 2) == expected
