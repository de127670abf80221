"""Anserini's and Pyserini's JSON vectors: one object per line, ``{"id", "contents", "vector": {term: weight}}``.

Topics have the same form without ``contents``.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.lines import text_lines
from lsr_prod.corpus.source_rows import BadRow, parse_object, shorten
from lsr_prod.storage import drafts
from lsr_prod_contrib.vectors.vector import (
    Problem,
    Rules,
    ValidatedVector,
    VectorRow,
    id_problem,
    row_of_tokens,
    text_problem,
)

LINE_LIMIT = 1 << 24
"""Longest line in bytes."""


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a draft file that gets its name when the block ends without an error."""
    with drafts.new_file(path) as raw:
        if not path.name.endswith(".gz"):
            yield raw
            return
        # No time and no name inside: equal content makes equal files.
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
            yield cast("IO[bytes]", file)


def json_vectors(file: Readable, rules: Rules) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (offset, vector) of every line; blank lines are skipped."""
    for at, line, whole in text_lines(file, 0, None, LINE_LIMIT):
        yield at, _validate(line, whole, rules)


def _validate(line: bytes, whole: bool, rules: Rules) -> ValidatedVector:
    if not whole:
        return BadRow("row_too_long", f"the line is longer than {LINE_LIMIT} bytes", None, shorten(line))
    try:
        record = parse_object(line, partial(json.loads, object_pairs_hook=_object))
    except _RepeatedKeyError as error:
        return BadRow("repeated_term", str(error), None, shorten(line))
    if isinstance(record, BadRow):
        return record
    doc_id = record.get("id")
    if type(doc_id) is int:  # Anserini accepts numbers as ids
        doc_id = str(doc_id)
    if (problem := id_problem(doc_id)) is not None:
        return BadRow(*problem, None, shorten(line))
    row = _vector(str(doc_id), record, rules)
    return row if isinstance(row, VectorRow) else BadRow(*row, str(doc_id), shorten(line))


def _vector(doc_id: str, record: Mapping[str, Any], rules: Rules) -> VectorRow | Problem:
    vector, contents = record.get("vector"), record.get("contents")
    if vector is None:
        return "missing_vector", "the object has no vector"
    if not isinstance(vector, dict):
        return "wrong_type", f"the vector is {type(vector).__name__}, not an object"
    if contents is not None:
        if not isinstance(contents, str):
            return "wrong_type", f"contents is {type(contents).__name__}, not a string"
        if (problem := text_problem("contents", contents)) is not None:
            return problem
    return row_of_tokens(doc_id, vector, contents, rules)


class _RepeatedKeyError(Exception):
    """An object has a key twice; Python's JSON parser would silently keep the last value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise _RepeatedKeyError(f"{next(name for name in names if names[name] > 1)!r} stands twice in an object")
    return made


def vector_line(doc_id: str, vector: Mapping[str, float], contents: str | None = None) -> bytes:
    """Return one line, newline included. Weights of type int stay int."""
    text = {} if contents is None else {"contents": contents}
    value = {"id": doc_id, **text, "vector": dict(vector)}
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def write_jsonl(path: Path, vectors: Iterable[tuple[str, Mapping[str, float], str | None]]) -> int:
    """Write vectors, one per line; the file is complete or absent.

    Args:
        path: a new file; gzip if it ends in ``.gz``.
        vectors: (id, term -> weight, contents or None).

    Returns:
        Number of vectors.

    Raises:
        StorageError: ``path`` exists, or the disk fails.
    """
    count = 0
    with new_file(path) as file:
        for doc_id, vector, contents in vectors:
            file.write(vector_line(doc_id, vector, contents))
            count += 1
    return count
