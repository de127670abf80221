"""The setting ``report``: a job writes its pages at its end, and fails before its work if it could not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod.jobs.command import main
from tests.indexing.corpus import Doc
from tests.indexing.increments import deployment, make_world

CORPUS = {f"doc{i:03d}": Doc({1 + i % 7: 1 + i, 20: 3}, f"text {i}") for i in range(40)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    make_world(root, CORPUS)
    return root


def config(world: Path, folder: Path, report: Any) -> str:
    """Settings of an index in a folder of its own."""
    index = deployment(world, output=str(folder / "index")).index
    assert index is not None
    settings = {"index": index.model_dump(mode="json", exclude_defaults=True), "report": report}
    (folder / "deployment.yaml").write_text(yaml.safe_dump(settings))
    return str(folder / "deployment.yaml")


def result(output: str) -> dict[str, Any]:
    (line,) = [line for line in output.splitlines() if line.startswith("RESULT ")]
    found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return found


def test_index_job_writes_the_pages_of_the_run_and_of_the_index(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = config(world, tmp_path, str(tmp_path / "pages"))
    for _ in range(2):  # the second run changes nothing, and writes the same pages
        assert main(["index", "build", "--config", given]) == 0
        names = ["index-run.html", "index.html"]
        assert result(capsys.readouterr().out)["pages"] == [str(tmp_path / "pages" / name) for name in names]
        run, index = (json.loads((tmp_path / "pages" / name).with_suffix(".json").read_text()) for name in names)
        assert run["data"]["builds"][-1]["documents"] == index["data"]["documents"] == len(CORPUS)
        assert len(run["data"]["builds"]) == 1


def test_job_without_the_setting_writes_no_page(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", "build", "--config", config(world, tmp_path, None)]) == 0
    assert "pages" not in result(capsys.readouterr().out)


def test_missing_extra_is_reported_before_the_work(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("lsr_prod_contrib.pages")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["index", "build", "--config", config(world, tmp_path, str(tmp_path / "pages"))]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")]
    assert "lsr_prod[pages]" in line
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"output": "pages", "cluster": "absent.yaml"}, "--cluster"),
        ({"cluster": "prices.yaml"}, "report.output"),
        ("ftp://host/pages", "report"),
        ({"output": "pages", "sample": 0}, "report.sample"),
    ],
)
def test_wrong_setting_is_one_line_and_nothing_is_written(
    world: Path, tmp_path: Path, report: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", "build", "--config", config(world, tmp_path, report)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")]
    assert words in line
    assert not (tmp_path / "index").exists()


def test_page_that_cannot_be_written_fails_after_the_result(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert main(["index", "build", "--config", config(world, tmp_path, str(tmp_path / "file" / "pages"))]) == 1
    captured = capsys.readouterr()
    found = result(captured.out)
    assert (found["publication"], found["pages"]) == (1, [])
    assert "Traceback" not in captured.err


def test_dry_run_writes_no_page(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "a lock"}\n')
    settings = {
        "source": {"paths": [str(tmp_path / "corpus.jsonl")]},
        "encode": {"bundle": str(tiny_bundle), "table": str(tmp_path / "table"), "actors": 1},
        "report": str(tmp_path / "pages"),
    }
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump(settings))
    assert main(["encode", "--config", str(tmp_path / "deployment.yaml"), "--dry-run"]) == 0
    assert not (tmp_path / "pages").exists()
