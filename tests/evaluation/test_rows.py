from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.collection import read_qrels, read_queries
from lsr_prod.evaluation.rows import numbered_lines
from lsr_prod.evaluation.runs import read_run

WORDS = """1 0.5 nan 1e999 # Q0 id text qid score , ; " { } [ ] <top> <num> </top> "_id": {"qid":1,"pid":2,"rel":3}"""
PIECES = st.sampled_from([*WORDS.split(), " ", "\t", "\n", "\r", "\0"])


def test_lines_have_numbers_and_no_line_ends(tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_bytes(b"\xef\xbb\xbfa\tx\r\n\r\nb\ty")
    assert list(numbered_lines(str(tmp_path / "q.tsv"))) == [(1, "a\tx"), (3, "b\ty")]


def test_line_above_the_limit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.evaluation.rows._LONGEST", 100)
    (tmp_path / "q.tsv").write_text("a\tx\n" + "y" * 99 + "\n" + "z" * 102)
    with pytest.raises(SourceError, match=r"line 3 of .*q\.tsv has more than 100 bytes"):
        list(numbered_lines(str(tmp_path / "q.tsv")))


@pytest.mark.parametrize("read", [read_qrels, read_queries, read_run])
@settings(max_examples=150, deadline=None)
@given(
    data=st.one_of(st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode()), st.binary(max_size=40))
)
@example(data=b"1 0 d " + b"9" * 5000)
@example(data=b'{"1": {"d": ' + b"9" * 5000 + b"}}")
@example(data=b'{"1": {"d": ' + b"9" * 400 + b"}}")
@example(data=b'{"1": {"d": [' + b"[" * 100_000)
def test_every_file_is_read_or_refused_with_its_name(tmp_path_factory, read: Callable[[str], Any], data: bytes) -> None:
    path = tmp_path_factory.mktemp("rows") / "file"
    path.write_bytes(data)
    with suppress(SourceError):
        list(read(str(path)))
