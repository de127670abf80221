from pathlib import Path

import pytest

from lsr_prod.encoding.interchange.jsonl import numbered_lines
from lsr_prod.errors import SourceError


def test_lines_have_numbers_and_no_line_ends(tmp_path: Path):
    (tmp_path / "q.tsv").write_bytes(b"\xef\xbb\xbfa\tx\r\n\r\nb\ty")
    assert list(numbered_lines(str(tmp_path / "q.tsv"))) == [(1, "a\tx"), (3, "b\ty")]


def test_line_above_the_limit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lsr_prod.encoding.interchange.jsonl._LONGEST", 100)
    (tmp_path / "q.tsv").write_text("a\tx\n" + "y" * 99 + "\n" + "z" * 102)
    with pytest.raises(SourceError, match=r"line 3 of .*q\.tsv has more than 100 characters"):
        list(numbered_lines(str(tmp_path / "q.tsv")))
