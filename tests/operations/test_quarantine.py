"""The quarantine viewer: committed and uncommitted rows, filters, and text that a terminal must not act on."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.tables.quarantine_rows import write_quarantine
from lsr_prod.jobs.command import main
from lsr_prod.logs import json_line
from lsr_prod.storage import Store
from tests.encoding.made_tables import make_cell, make_tables

_EVIL = "\x1b]0;title\x07\r\n\x9b31m\u202e\x7f"


def wave(folder: Path) -> Store:
    """A quarantine with two committed rows, a leftover of an earlier attempt at their wave, and an uncommitted wave."""
    table, quarantine = make_tables(folder)
    make_cell(table, quarantine, 0, "", "z", plan="p")
    committer = Committer(take_epoch(table, "p", ()), table, quarantine)
    committer.commit(WaveResult(0, (make_cell(table, quarantine, 0, "a", "xy"),)))
    row = {
        "cell": 0, "file": 0, "source": "s3://key:secret@bucket/b.jsonl", "source_key": 0, "position": 7,
        "reason": "empty_text", "detail": f"bad {_EVIL}", "doc_id": _EVIL, "raw": f"raw {_EVIL}",
    }  # fmt: skip
    write_quarantine(quarantine, "p", 1, pa.Table.from_pylist([row], schema=row_schema(())))
    return quarantine


def rows(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict]:
    assert main(["table", "quarantine", *argv, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_rows_of_committed_and_uncommitted_waves_are_named_without_leftovers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(capsys, wave(tmp_path).uri)
    assert [(row["wave"], row["state"], row["detail"][:1]) for row in found] == [
        (0, "committed", "x"),
        (0, "committed", "y"),
        (1, "not committed", "b"),
    ]
    assert main(["table", "quarantine", str(tmp_path / "quarantine")]) == 0
    printed = capsys.readouterr().out
    assert "not committed" in printed
    assert "broken_json" in printed


@pytest.mark.parametrize(
    ("argv", "waves"),
    [
        (["--reason", "empty_text"], [1]),
        (["--source", "c.json"], [0, 0]),
        (["--wave", "0", "--limit", "1"], [0]),
        (["--plan", "p"], [0, 0, 1]),
        (["--reason", "none"], []),
    ],
)
def test_filters(argv: list[str], waves: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["wave"] for row in rows(capsys, wave(tmp_path).uri, *argv)] == waves


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_control_characters_and_secrets_do_not_reach_the_terminal(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "quarantine", wave(tmp_path).uri, "--raw", *form]) == 0
    printed = capsys.readouterr().out
    assert not {*printed} & {*_EVIL} - {"\n", *"]0;title31m"}
    assert "secret" not in printed
    assert "bucket/b.jsonl" in printed
    assert main(["table", "quarantine", wave(tmp_path / "again").uri, *form]) == 0
    assert "raw" not in capsys.readouterr().out


def test_json_has_the_exact_text() -> None:
    assert json.loads(json_line(_EVIL)) == _EVIL


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["{table}"], 1, "is a table of documents; give the folder of its quarantine"),
        (["{empty}"], 1, "is no quarantine"),
        (["{quarantine}", "--plan", "q"], 2, "--plan"),
        (["{quarantine}", "--limit", "-1"], 2, "--limit"),
        ([], 2, "give either QUARANTINE or --config"),
    ],
)
def test_wrong_input_is_one_line(
    argv: list[str], code: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wave(tmp_path)
    places = {name: str(tmp_path / name) for name in ("table", "empty", "quarantine")}
    assert main(["table", "quarantine", *(one.format(**places) for one in argv)]) == code
    captured = capsys.readouterr()
    assert text in captured.err
    assert (len(captured.err.splitlines()), captured.out) == (1, "")
