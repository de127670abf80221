"""Anserini's topics of impact indexes: ``id<TAB>term term term``, a term as often as it weighs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lsr_prod.corpus.lines import Readable, lines
from lsr_prod.corpus.rows import BadRow, shorten
from lsr_prod.interchange.files import new_file
from lsr_prod.interchange.jsonl import LINE_LIMIT
from lsr_prod.interchange.vectors import Judged, Problem, Rules, VectorRow, id_problem, row_of_tokens

__all__ = ["topic_vectors", "write_topics"]

_BOM = b"\xef\xbb\xbf"


def topic_vectors(file: Readable, rules: Rules) -> Iterator[tuple[int, Judged]]:
    """(offset, vector) of every line; blank lines are none.

    Args:
        file: the plain bytes.
        rules: what a vector has to be.
    """
    for at, line, whole in lines(file, 0, None, LINE_LIMIT):
        record = (line.removeprefix(_BOM) if at == 0 else line).removesuffix(b"\r")
        if not record:
            continue
        row = _vector(record, rules) if whole else ("row_too_long", f"the line is longer than {LINE_LIMIT} bytes")
        yield at, row if isinstance(row, VectorRow) else BadRow(*row, None, shorten(record))


def _vector(line: bytes, rules: Rules) -> VectorRow | Problem:
    try:
        topic_id, tab, text = line.decode().partition("\t")
    except UnicodeDecodeError as error:
        return "invalid_utf8", f"{error.reason} at byte {error.start} of the line"
    if not tab:
        return "wrong_field_count", "the line has no tab between id and terms"
    # Only spaces part terms: a vocabulary may have terms of other white space.
    terms: Mapping[str, int] = Counter(term for term in text.split(" ") if term)
    return id_problem(topic_id) or row_of_tokens(topic_id, terms, None, rules)


def write_topics(path: Path, vectors: Iterable[tuple[str, Mapping[str, int]]]) -> int:
    """Write topics; the file appears whole or not at all.

    Args:
        path: a new file; gzip if it ends in ``.gz``.
        vectors: (id, term -> weight, an integer of 0 or more).

    Returns:
        How many they are.

    Raises:
        ValueError: a weight is no such integer, or an id or a term holds what the format cannot.
        StorageError: there is something at ``path``, or the disk fails.
    """
    count = 0
    with new_file(path) as file:
        for topic_id, vector in vectors:
            file.write(_line(topic_id, vector))
            count += 1
    return count


def _line(topic_id: str, vector: Mapping[str, int]) -> bytes:
    if (problem := id_problem(topic_id)) is not None:
        raise ValueError(f"topic {topic_id!r}: {problem[1]}")
    words: list[str] = []
    for term, weight in vector.items():
        if not term or any(character in term for character in " \t\r\n"):
            raise ValueError(f"topic {topic_id}: {term!r} cannot stand in a line of terms; write JSONL")
        if type(weight) is not int or weight < 0:
            raise ValueError(
                f"topic {topic_id}: {term!r} has weight {weight}; give integers of 0 or more, or write JSONL"
            )
        words += [term] * weight
    return f"{topic_id}\t{' '.join(words)}\n".encode()
