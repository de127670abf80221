"""Kinds of broken input: how to create each, and its expected outcome.

``python -m tests.encoding.bad_corpora`` makes all of them and prints the table of docs/input.md.
"""

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.source_rows import DAMAGED_FILE, DAMAGED_ROW
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.errors import ConfigError, SourceError
from tests.encoding.bad_files import (
    ROWS,
    corrupt_page,
    csv,
    cut_dataset,
    dangling_link,
    dataset_without_end,
    dataset_without_file,
    delta,
    delta_of_other_size,
    delta_with_feature,
    delta_without_file,
    documents,
    duplicates,
    empty_files,
    empty_folder,
    file,
    file_without_id,
    folder_of_parts,
    invalid_utf8_parquet,
    jsonl,
    line,
    only_markers,
    parquet_without_rows,
    random_rows,
    torn_first_parquet,
    torn_large_parquet,
    torn_small_parquet,
    two_parquet,
    zstd,
)


@dataclass(frozen=True)
class Kind:
    """A way in which a corpus can be broken.

    Attributes:
        name: for people.
        make: writes the corpus into a folder.
        outcome: what has to come of it.
        path: what of the folder the settings name.
        source: further settings.
        rows: of a file that is damaged somewhere, all that it had: some documents have to come of it, not all.
    """

    name: str
    make: Callable[[Path], None]
    outcome: str
    path: str = ""
    source: dict[str, Any] = field(default_factory=dict)
    rows: int = 0

    def settings(self, folder: Path) -> SourceSettings:
        """Return the section ``source`` for the corpus in a folder."""
        return SourceSettings(paths=[str(folder / self.path)], on_damage="skip", **self.source)


ENCODE = EncodeSettings(bundle="b", table="t", slice_megabytes=1)


def outcome_of(kind: Kind, folder: Path) -> str:
    """Create the corpus, list, plan and read it; return the outcome in words."""
    folder.mkdir()
    kind.make(folder)
    source = kind.settings(folder)
    try:
        plan = make_plan(resolve_source(source, {}), PlanInputs(source, ENCODE, "b", {}))
    except ConfigError as error:
        return f"exit 2, `{error.field}`" if str(folder) in str(error) else f"exit 2 without a path: {error}"
    reader = Reader(source, 7, {})
    tables = [table for piece in plan.slices() for table in reader.read(piece)]
    rows = [row for table in tables for row in table.to_pylist()]
    assert all(row["source"].startswith(str(folder)) for row in rows)
    reasons = Counter(row["reason"] for row in rows if row["reason"])
    ids = Counter(row["doc_id"] for row in rows if row["reason"] is None)
    reasons["duplicate_id"] += ids.total() - len(ids)  # found by the encode job, which keeps the first row of an id
    found = [f"{count} `{reason}`" for reason, count in sorted(reasons.items()) if count]
    _check_refusal(plan, source, damaged=bool(reasons.keys() & {DAMAGED_FILE, DAMAGED_ROW}))
    count = f"{len(ids)} document{'s' if len(ids) != 1 else ''}"
    return ", ".join(["the documents before it" if 0 < len(ids) < kind.rows else count, *found])


def _check_refusal(plan: Plan, source: SourceSettings, *, damaged: bool) -> None:
    """Check that a damaged file, and no other one, is refused by default."""
    reader = Reader(source.model_copy(update={"on_damage": "fail"}), 7, {})
    refusals = []
    for piece in plan.slices():
        try:
            list(reader.read(piece))
        except SourceError as error:
            refusals.append(str(error).startswith(f"{piece.file.location} is damaged: "))
    assert bool(refusals) == damaged
    assert all(refusals)


def table_of(outcomes: Iterable[tuple[str, str]]) -> str:
    """Return the Markdown table of docs/input.md."""
    lines = [f"| {name} | {outcome} |" for name, outcome in outcomes]
    return "\n".join(["| broken input | result |", "|---|---|", *lines])


LONG = " ".join(["word"] * 1_000_000).encode()

KINDS = (
    Kind("JSON: a line cut in the middle", line(b'{"_id": "ID-x", "text": "no en'), "2 documents, 1 `broken_json`"),
    Kind("JSON: a line that is a list", line(b'["ID-x"]'), "2 documents, 1 `not_an_object`"),
    Kind(
        "JSON: one array over many lines instead of a row a line",
        file("a.jsonl", lambda folder: json.dumps(documents(folder), indent=1).encode()),
        "0 documents, 12 `broken_json`",
    ),
    Kind(
        "JSON: the same in a file named .json",
        file("a.json", lambda folder: json.dumps(documents(folder), indent=1).encode()),
        "2 documents",
    ),
    Kind(
        "JSON: an array that is cut",
        file("a.json", lambda folder: json.dumps(documents(folder), indent=1).encode()[:-9]),
        "1 document, 1 `damaged_file`",
    ),
    Kind(
        "JSON: an object around the array",
        file("a.json", lambda folder: json.dumps({"data": documents(folder)}).encode()),
        "0 documents, 1 `damaged_file`",
    ),
    Kind("JSON: 100,000 brackets", line(b"[" * 100_000), "2 documents, 1 `broken_json`"),
    Kind("JSON: a number of 5,000 digits", line(b'{"_id": ' + b"1" * 5000 + b"}"), "2 documents, 1 `broken_json`"),
    Kind("JSON: Latin-1", line(b'{"_id": "ID-x", "text": "caf\xe9"}'), "2 documents, 1 `invalid_utf8`"),
    Kind(
        "JSON: half of a surrogate pair", line(b'{"_id": "ID-x", "text": "\\ud83d"}'), "2 documents, 1 `invalid_utf8`"
    ),
    Kind(
        "JSON: UTF-16",
        file("a.jsonl", lambda folder: jsonl(documents(folder)).decode().encode("utf-16")),
        "0 documents, 1 `damaged_file`",
    ),
    Kind(
        "JSON: a byte order mark, CRLF, blank lines, no line end at the end",
        file("a.jsonl", lambda folder: b"\xef\xbb\xbf" + jsonl(documents(folder)).replace(b"\n", b"\r\n\r\n").strip()),
        "2 documents",
    ),
    Kind("JSON: NUL in a text", line(b'{"_id": "ID-x", "text": "a\\u0000b"}'), "3 documents"),
    Kind("JSON: a text of NULs", line(b'{"_id": "ID-x", "text": "\\u0000\\u0000"}'), "2 documents, 1 `empty_text`"),
    Kind("JSON: NUL in an id", line(b'{"_id": "ID-\\u0000", "text": "x"}'), "2 documents, 1 `control_characters`"),
    Kind(
        "JSON: an id of 2,000 bytes",
        line(b'{"_id": "' + b"x" * 2000 + b'", "text": "x"}'),
        "2 documents, 1 `id_too_long`",
    ),
    Kind("JSON: a line end in an id", line(b'{"_id": "ID-\\n", "text": "x"}'), "2 documents, 1 `control_characters`"),
    Kind("JSON: zeros where a crash left a hole", line(b"\0" * 4096), "2 documents, 1 `broken_json`"),
    Kind("JSON: no id", line(b'{"text": "x"}'), "2 documents, 1 `missing_id`"),
    Kind("JSON: id null or empty", line(b'{"_id": null}', b'{"_id": "", "text": "x"}'), "2 documents, 2 `missing_id`"),
    Kind("JSON: id a fraction", line(b'{"_id": 7.5, "text": "x"}'), "2 documents, 1 `wrong_type`"),
    Kind("JSON: text a list", line(b'{"_id": "ID-x", "text": ["x"]}'), "2 documents, 1 `wrong_type`"),
    Kind(
        "JSON: no text, or only spaces",
        line(b'{"_id": "ID-x"}', b'{"_id": "ID-y", "text": " "}'),
        "2 documents, 2 `empty_text`",
    ),
    Kind(
        "a text of 1,000,000 words", line(b'{"_id": "ID-x", "text": "' + LONG + b'"}'), "2 documents, 1 `text_too_long`"
    ),
    Kind("a line of 30 MB", line(b'{"_id": "ID-x", "text": "' + LONG * 6 + b'"}'), "2 documents, 1 `row_too_long`"),
    Kind("the same id twice in a file", line(b'{"_id": "ID-0", "text": "x"}'), "2 documents, 1 `duplicate_id`"),
    Kind("the same id in two files", duplicates, "2 documents, 1 `duplicate_id`"),
    Kind(
        "gzip: cut",
        file("a.jsonl.gz", lambda folder: gzip.compress(random_rows(folder, ROWS))[:20_000]),
        "the documents before it, 1 `damaged_file`",
        rows=ROWS,
    ),
    Kind("gzip: is none", file("a.jsonl.gz", lambda folder: jsonl(documents(folder))), "0 documents, 1 `damaged_file`"),
    Kind(
        "gzip: something behind its end",
        file("a.jsonl.gz", lambda folder: gzip.compress(jsonl(documents(folder))) + b"garbage"),
        "2 documents, 1 `damaged_file`",
    ),
    Kind(
        "gzip: two members",
        file("a.jsonl.gz", lambda folder: b"".join(gzip.compress(jsonl([row])) for row in documents(folder))),
        "2 documents",
    ),
    Kind(
        "gzip: without the ending",
        file("a.jsonl", lambda folder: gzip.compress(jsonl(documents(folder)), mtime=0)),
        "0 documents, 1 `invalid_utf8`",
    ),
    Kind(
        "zstd: cut",
        file("a.jsonl.zst", lambda folder: zstd(random_rows(folder, ROWS))[:70_000]),
        "the documents before it, 1 `damaged_file`",
        rows=ROWS,
    ),
    Kind(
        "zstd: is none", file("a.jsonl.zst", lambda folder: jsonl(documents(folder))), "0 documents, 1 `damaged_file`"
    ),
    Kind("Parquet: torn footer, of the first file", torn_first_parquet, "exit 2, `source.paths`"),
    Kind("Parquet: torn footer, of a file larger than a slice", torn_large_parquet, "exit 2, `source.paths`"),
    Kind("Parquet: torn footer, of a small file", torn_small_parquet, "2 documents, 1 `damaged_file`"),
    Kind("Parquet: a flipped byte in a page", corrupt_page, "100 documents, 1 `damaged_file`"),
    Kind("Parquet: the first file has no id column", file_without_id, "exit 2, `source.id_field`"),
    Kind(
        "Parquet: a later file has no id column",
        two_parquet(lambda _: {"text": ["x", "y"]}),
        "2 documents, 2 `missing_id`",
    ),
    Kind(
        "Parquet: a later file has no text column",
        two_parquet(lambda folder: {"_id": [f"{folder.name}-x"]}),
        "2 documents, 1 `empty_text`",
    ),
    Kind(
        "Parquet: ids are numbers in a later file",
        two_parquet(lambda _: {"_id": [70001, 70002], "text": ["x", "y"]}),
        "4 documents",
    ),
    Kind(
        "Parquet: ids are fractions in a later file",
        two_parquet(lambda _: {"_id": [1.5], "text": ["x"]}),
        "2 documents, 1 `wrong_type`",
    ),
    Kind(
        "Parquet: texts are lists in a later file",
        two_parquet(lambda folder: {"_id": [f"{folder.name}-x"], "text": [["x"]]}),
        "2 documents, 1 `wrong_type`",
    ),
    Kind("Parquet: strings that are no UTF-8", two_parquet(invalid_utf8_parquet), "3 documents, 1 `invalid_utf8`"),
    Kind("Parquet: no rows", parquet_without_rows, "2 documents"),
    Kind("a folder named day.parquet, with markers", folder_of_parts, "2 documents", "day.parquet"),
    Kind("the same, `source.format: parquet`", folder_of_parts, "2 documents", "day.parquet", {"format": "parquet"}),
    Kind("an empty folder named day.parquet", empty_folder, "exit 2, `source.paths`", "day.parquet"),
    Kind("a folder with nothing but markers", only_markers, "exit 2, `source.paths`"),
    Kind("empty files", empty_files, "2 documents"),
    Kind("a path where nothing is", lambda _: None, "exit 2, `source.paths`", "absent.jsonl"),
    Kind("a glob that nothing matches", line(), "exit 2, `source.paths`", "*.parquet"),
    Kind("an ending that we do not know", file("a.doc", lambda _: b"x"), "exit 2, `source.format`"),
    Kind("a link that leads nowhere", dangling_link, "exit 2, `source.paths`", "a.jsonl"),
    Kind("CSV: a row with too many fields", file("a.csv", csv(b"ID-x,a,b,c")), "2 documents, 1 `wrong_field_count`"),
    Kind("CSV: a quote that is never closed", file("a.csv", csv(b'ID-x,t,"open')), "2 documents, 1 `damaged_row`"),
    Kind("CSV: text behind a closed quote", file("a.csv", csv(b'ID-x,"t"t,x')), "2 documents, 1 `damaged_row`"),
    Kind(
        "CSV: a quote that the next row closes",
        file("a.csv", csv(b'ID-x,t,"open', b'ID-y,"t",x')),
        "3 documents, 1 `damaged_row`",
    ),
    Kind(
        "CSV: line ends that are carriage returns",
        file("a.csv", lambda _: b"_id,text\ra,x\rb,x\r"),
        "0 documents, 1 `damaged_file`",
    ),
    Kind("CSV: line ends and commas in quotes", file("a.csv", csv(b'ID-x,"t, t","x\n\ny ""z"""')), "3 documents"),
    Kind("CSV: Latin-1", file("a.csv", csv(b"ID-x,t,caf\xe9")), "2 documents, 1 `invalid_utf8`"),
    Kind(
        "CSV: a column twice in the header",
        file("a.csv", csv(header=b"_id,text,text")),
        "0 documents, 1 `damaged_file`",
    ),
    Kind("CSV: no id in the header", file("a.csv", csv(header=b"id,title,text")), "exit 2, `source.id_field`"),
    Kind("CSV: no zstd", file("a.csv.zst", csv()), "0 documents, 1 `damaged_file`"),
    Kind("CSV: semicolons", file("a.csv", csv(header=b"_id;title;text")), "exit 2, `source.csv.delimiter`"),
    Kind(
        "CSV: UTF-16",
        file("a.csv", lambda folder: csv()(folder).decode().encode("utf-16")),
        "exit 2, `source.csv.encoding`",
    ),
    Kind(
        "CSV: a backslash before quotes",
        file("a.csv", csv(b'ID-x,t,"a \\"quoted\\", word"')),
        "2 documents, 1 `damaged_row`",
    ),
    Kind(
        "CSV: the same, `source.csv.escape` set",
        file("a.csv", csv(b'ID-x,t,"a \\"quoted\\", word"')),
        "3 documents",
        source={"csv": {"escape": "\\"}},
    ),
    Kind(
        "CSV: two files joined, with their byte order marks and headers",
        file(
            "a.csv", lambda folder: csv()(folder) + b"\xef\xbb\xbf_id,title,text\n" + folder.name.encode() + b"-2,t,x\n"
        ),
        "3 documents",
    ),
    Kind("saved dataset: cut inside of a batch", cut_dataset, "100 documents, 1 `damaged_file`"),
    Kind("saved dataset: cut behind a batch", dataset_without_end, "150 documents, 1 `damaged_file`"),
    Kind("saved dataset: a file is missing", dataset_without_file, "exit 2, `source.paths`"),
    Kind("Delta: a feature that we do not read", delta_with_feature, "exit 2, `source.paths`", "delta"),
    Kind("Delta: no such version", delta, "exit 2, `source.paths`", "delta", {"version": 9}),
    Kind("Delta: a file of the version is gone", delta_without_file, "exit 2, `source.paths`", "delta"),
    Kind("Delta: a file of the version is cut", delta_of_other_size, "exit 2, `source.paths`", "delta"),
)


def main() -> None:
    """Print the table of the current outcomes."""
    with tempfile.TemporaryDirectory() as scratch:
        print(table_of((kind.name, outcome_of(kind, Path(scratch) / f"k{i}")) for i, kind in enumerate(KINDS)))


if __name__ == "__main__":
    main()
