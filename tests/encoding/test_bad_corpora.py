from pathlib import Path

import pytest

from tests.encoding.bad_corpora import KINDS, Kind, outcome_of, table_of

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_broken_input_is_quarantined_or_refused_and_nothing_else_is_lost(kind: Kind, tmp_path: Path):
    assert outcome_of(kind, tmp_path / "k") == kind.outcome


def test_the_table_in_the_documentation_is_what_happens():
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 30
    assert table_of((kind.name, kind.outcome) for kind in KINDS) in OPERATIONS.read_text(encoding="utf-8")
