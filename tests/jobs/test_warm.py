"""``lsr-prod index warm`` prints what a cold start costs."""

import re

from lsr_prod.jobs.command import main
from tests.indexing.corpus import Doc, make_index


def test_warm_prints_cold_start(tmp_path, capsys):
    make_index(tmp_path, {"a": Doc({0: 5, 1: 2}), "b": Doc({1: 9})}, vocabulary_size=4)
    assert main(["index", "warm", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert re.fullmatch(r"open [\d.]+ ms · first queries [\d.]+ ms · same queries again [\d.]+ ms\n", printed.out)


def test_warm_exits_1_with_one_line_without_index(tmp_path, capsys):
    assert main(["index", "warm", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("lsr-prod index warm failed: PublicationError: ")
