"""Anserini's topics of impact indexes: ``id<TAB>term term term``, a term is repeated as often as its weight."""

from collections import Counter
from collections.abc import Iterator, Mapping

from lsr_prod.corpus.lines import Readable, lines
from lsr_prod.corpus.rows import BadRow, shorten
from lsr_prod.interchange.jsonl import LINE_LIMIT
from lsr_prod.interchange.vectors import Problem, Rules, ValidatedVector, VectorRow, id_problem, row_of_tokens

_BOM = b"\xef\xbb\xbf"


def topic_vectors(file: Readable, rules: Rules) -> Iterator[tuple[int, ValidatedVector]]:
    """Yield (offset, vector) of every line; blank lines are skipped."""
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
    # Only spaces separate terms: a vocabulary may have terms of other white space.
    terms: Mapping[str, int] = Counter(term for term in text.split(" ") if term)
    return id_problem(topic_id) or row_of_tokens(topic_id, terms, None, rules)
