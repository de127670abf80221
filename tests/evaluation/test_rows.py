from pathlib import Path

import pytest

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.rows import numbered_lines


def test_lines_have_numbers_and_no_line_ends(tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_bytes(b"\xef\xbb\xbfa\tx\r\n\r\nb\ty")
    assert list(numbered_lines(str(tmp_path / "q.tsv"))) == [(1, "a\tx"), (3, "b\ty")]


def test_line_above_the_limit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.evaluation.rows._LONGEST", 100)
    (tmp_path / "q.tsv").write_text("a\tx\n" + "y" * 99 + "\n" + "z" * 102)
    with pytest.raises(SourceError, match=r"line 3 of .*q\.tsv has more than 100 bytes"):
        list(numbered_lines(str(tmp_path / "q.tsv")))
