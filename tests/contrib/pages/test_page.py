"""The subcommand page: kinds, inputs, outputs, and errors of one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.jobs.command import main
from tests.contrib.pages.results import evaluation_result, sweep_result
from tests.indexing.corpus import encode_corpus, make_index
from tests.search.conftest import TEXTS

KINDS = ("index", "query", "run", "evaluation", "side-by-side", "sweep")


def written(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The line for machines."""
    line = capsys.readouterr().out.splitlines()[-1]
    result: dict[str, object] = json.loads(line.removeprefix("RESULT "))
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_help_in_one_style(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", kind, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: lsr-prod inspect {kind} ")
    assert "Exit codes: 0 done" in shown


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "no command was given; see lsr-prod inspect --help"),
        (["quer"], "there is no command quer; did you mean query?"),
        (["sweep"], "the following arguments are required: FILE"),
        (["query", "index", "text", "-k", "0"], "-k: 0 is not possible; give an integer from 1 to 100"),
        (["query", "index", "text", "--qk", "0"], "--qk: 0 is not possible; give an integer above 0"),
        (["query", "index", "text", "--words", "-1"], "--words: "),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(argv: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("lsr-prod inspect")
    assert part in captured.err


@pytest.mark.parametrize(
    ("content", "part", "code"),
    [
        (b"{", "is not JSON", 2),
        (b'{"a": 1}', "has no measure, costs, points, fronts, chosen", 2),
        (b"[]", "has no measure", 2),
        (b"[" * 100_000, "is not JSON", 2),
        (b"\xff\xfe", "is not UTF-8", 1),
        (None, "cannot be read", 1),
    ],
)
def test_file_that_is_no_result_is_one_line_and_nothing_is_written(
    content: bytes | None, part: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "file.json").write_bytes(content)
    assert main(["inspect", "sweep", str(tmp_path / "file.json"), "--output", str(tmp_path / "out")]) == code
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert part in error
    assert not (tmp_path / "out").exists()


def _results() -> dict[str, dict[str, Any]]:
    side = {"doc_id": "d", "rank": 1, "score": 1.0}
    row = {"query_id": "q", "text": "t", "overlap": 1, "change": 0, "value_a": 1, "value_b": 0, "a": [side], "b": []}
    figures = dict.fromkeys(("overlap", "wins", "losses", "ties"), 1)
    term = {"term": "t", "weight_a": 1, "weight_b": 2, "drift": 1}
    canary = {"a": "x", "b": "y", "k": 1, "queries": 1, **figures, "rows": [row], "terms": [term]}
    sweep = sweep_result(1, 2, 1, queries=1)
    return {"evaluation": evaluation_result(3), "sweep": sweep, "side-by-side": canary}


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("evaluation", ("systems",), 5),
        ("evaluation", ("systems", 0, "by_query"), {}),
        ("evaluation", ("comparisons",), [{}]),
        ("evaluation", ("efficiency",), {"bytes": 5}),
        ("evaluation", ("systems", 0, "measures", "nDCG@10"), "high"),
        ("sweep", ("points", 0), {}),
        ("sweep", ("points",), 7),
        ("sweep", ("costs",), []),
        ("sweep", ("fronts",), {}),
        ("sweep", ("fronts", "scifact", "flops"), [99]),
        ("sweep", ("chosen",), None),
        ("side-by-side", ("rows",), [None]),
        ("side-by-side", ("rows", 0, "a"), [{"doc_id": []}]),
        ("side-by-side", ("terms",), [{"term": "t"}]),
        ("side-by-side", ("overlap",), {"a": []}),
    ],
)
def test_odd_result_is_one_line_with_the_file(
    kind: str, place: tuple[str | int, ...], value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result: Any = _results()[kind]
    inner = result
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    (tmp_path / "odd.json").write_text(json.dumps(result))
    assert main(["inspect", kind, str(tmp_path / "odd.json"), "--output", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"FILE: {tmp_path}/odd.json has another form than the result of this release" in line
    assert not (tmp_path / "out").exists()


def test_result_line_in_the_output_of_a_job_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.dumps(sweep_result(1, 2, 1, queries=2))
    (tmp_path / "log").write_text(f"a table\nRESULT {{}}\nRESULT {result}\n")
    assert main(["inspect", "sweep", str(tmp_path / "log"), "--output", str(tmp_path)]) == 0
    assert written(capsys)["page"] == str(tmp_path / "sweep.html")
    assert json.loads((tmp_path / "sweep.json").read_text())["data"]["measure"] == "nDCG@10"


def test_evaluation_is_sorted_by_the_measure_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.json").write_text(json.dumps(evaluation_result(20)))
    argv = ["inspect", "evaluation", str(tmp_path / "in.json"), "--output", str(tmp_path), "--measure"]
    assert main([*argv, "RR@10"]) == 0
    assert json.loads((tmp_path / "evaluation.json").read_text())["data"]["measure"] == "RR@10"
    capsys.readouterr()
    assert main([*argv, "P@3"]) == 2
    assert "'P@3' was not measured; give one of nDCG@10, RR@10" in capsys.readouterr().err


def test_page_of_a_query_is_written_to_an_object_store(
    tmp_path: Path, tiny_bundle: Path, s3_options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_index(tmp_path / "index", encode_corpus(tiny_bundle, TEXTS), bundle=tiny_bundle, bm25=True)
    options = [f"--store-option={name}={value}" for name, value in s3_options.items()]
    argv = ["inspect", "query", str(tmp_path / "index"), "thread waits for a lock", "-k", "2", "--hybrid"]
    assert main([*argv, "--output", "s3://lsr/query", *options]) == 0
    result = written(capsys)
    assert result["page"] == "s3://lsr/query/query.html"
    assert result["hits"] >= 2  # type: ignore[operator]


def test_missing_extra_is_one_line_with_the_pip_command() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('jinja2', 'markupsafe', 'vl_convert')));"
        "from lsr_prod.jobs.command import main; print(main(['inspect', 'sweep', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2\n"
    assert "is not installed; install it with: pip install 'lsr_prod[pages]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
