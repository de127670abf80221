"""A source, its table and its index, made without Ray and without a model, to plant faults in."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lsr_prod.config import Deployment
from lsr_prod.corpus.filelist import file_keys, list_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.tables import Table, create_table, open_table, write_part
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine, write_quarantine
from lsr_prod.indexing.publish import write_version
from lsr_prod.operations.audit import Audit
from lsr_prod.operations.audit.audit import verify_deployment
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.formats.table_format import TableProperties, bucket_of, content_hash, content_keys, sparse_schema
from tests.indexing.corpus import FIELDS, Doc, make_index
from tests.indexing.publishing import publish

BUCKETS = 4
Rows = Mapping[str, Sequence[Mapping[str, object]]]
"""Name of a source file -> its rows."""


@dataclass(frozen=True, slots=True)
class World:
    """A folder with a source, a table and an index.

    Attributes:
        folder: the folder.
        rule: ``encode.on_duplicate``.
    """

    folder: Path
    rule: str = "first"

    @property
    def table(self) -> Table:
        """Newest snapshot of the table."""
        found = open_table(Store(str(self.folder / "table")))
        assert found is not None
        return found

    def deployment(self, **gates: object) -> Deployment:
        """Return the sections of the jobs."""
        table = str(self.folder / "table")
        return Deployment.model_validate(
            {
                "source": {"paths": [str(self.folder / "source")], "text_fields": ["text"], "stored_fields": [*FIELDS]},
                "encode": {"bundle": "b", "table": table, "on_duplicate": self.rule},
                "index": {"bundle": "b", "table": table, "output": str(self.folder / "index")},
                "gates": gates,
            }
        )

    def write_source(self, files: Rows) -> None:
        """Write the files of the source, in place of all others."""
        folder = self.folder / "source"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, rows in files.items():
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def files(self) -> pa.Table:
        """Return the source as it is listed."""
        source = self.deployment().source
        assert source is not None
        return list_files(resolve_source(source, {}))

    def make_table(self, documents: Iterable[Mapping[str, str]]) -> None:
        """Create the table with these documents, each with the name of its file."""
        properties = TableProperties("b" * 64, "v" * 64, 0.03125, 8, 64, BUCKETS, FIELDS, 8)
        schema = sparse_schema(FIELDS)
        table = create_table(Store(str(self.folder / "table")), schema, ["bucket"], properties.to_delta())
        create_quarantine(Store(str(self.folder / "table_quarantine")))
        self.add(table, documents, version=0)

    def add(
        self, table: Table, documents: Iterable[Mapping[str, str]], version: int, removes: Sequence[str] = ()
    ) -> None:
        """Commit documents as new parts."""
        listed = self.files()
        keys = dict(zip(listed["name"].to_pylist(), file_keys(listed).tolist(), strict=True))
        adds = []
        for bucket in range(BUCKETS):
            mine = [one for one in documents if bucket_of(one["_id"], BUCKETS) == bucket]
            rows = [
                {
                    "doc_id": one["_id"],
                    "terms": [1, 2],
                    "impacts": [int(one.get("impact", 5)), 1],
                    "content_hash": content_hash(one["text"]),
                    "content_key": int(content_keys([content_hash(one["text"])])[0]),
                    "source_file": keys.get(one["file"], 7),
                    "title": one.get("title"),
                    "text": one["text"],
                }
                for one in mine
            ]
            schema = table.schema.remove(table.schema.get_field_index("bucket"))
            part = write_part(
                table.store, f"bucket={bucket}", pa.Table.from_pylist(rows, schema=schema), f"world/{version}"
            )
            adds += [(part, {"bucket": str(bucket)})] if rows else []
        table.commit(adds, removes, app="world", version=version, epoch=1)

    def quarantine(self, doc_id: str, reason: str, file: str, position: int) -> None:
        """Commit a row of the quarantine."""
        store = Store(str(self.folder / "table_quarantine"))
        listed = self.files()
        keys = dict(zip(listed["name"].to_pylist(), file_keys(listed).tolist(), strict=True))
        row = {
            "file": 0, "source": file, "source_key": keys[file], "position": position, "doc_id": doc_id,
            "reason": reason, "detail": "", "raw": "",
        }  # fmt: skip
        part = write_quarantine(store, "p", 0, pa.Table.from_pylist([row], schema=row_schema(())))
        table = open_table(store)
        assert table is not None
        table.commit([(part, {"plan": "p", "wave": "0"})], [], app="p", version=table.version, epoch=1)

    def make_index(self, ids: Iterable[str], **changes: object) -> IndexVersion:
        """Build and publish an index with these ids, from the newest version of the table."""
        index = self.folder / "index"
        made = make_index(index, {one: Doc({1: 5}, one) for one in ids}, vocabulary_size=8, shards=2)
        version = replace(made, table_uri=str(self.folder / "table"), table_version=self.table.version, **changes)  # type: ignore[arg-type]
        write_version(index, version)
        publish(index, version.sha)
        return version

    def verify(self, sample: int = 1) -> Audit:
        """Run the audit."""
        return verify_deployment(self.deployment(), str(self.folder / "table"), sample)


def documents(files: Rows, rule: str = "first") -> list[dict[str, str]]:
    """Return the documents of a source: the row that the rule chooses for each id, with the name of its file."""
    chosen: dict[str, dict[str, str]] = {}
    for name in sorted(files):
        for row in files[name]:
            if rule == "last" or row["_id"] not in chosen:
                chosen[str(row["_id"])] = {**{key: str(value) for key, value in row.items()}, "file": name}
    return list(chosen.values())
