"""``lsr-prod encode --dry-run``: what a run would do; nothing is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.encoding import encode_corpus
from lsr_prod.jobs.encode import encode
from tests.contrib.estimates.test_estimate import ENCODE, write
from tests.encoding.test_incremental_encode import deployment


def config_of(folder: Path, bundle: Path) -> str:
    (folder / "corpus").mkdir(exist_ok=True)
    lines = [json.dumps({"_id": f"d{i}", "title": "t", "text": f"quick fox {i}"}) for i in range(20)]
    (folder / "corpus" / "a.jsonl").write_text("\n".join(lines))
    encode = {"bundle": str(bundle), "table": str(folder / "table"), "actors": 2, "impact_step": 0.02}
    path = folder / "deployment.yaml"
    path.write_text(json.dumps({"source": {"paths": [str(folder / "corpus")]}, "encode": encode}))
    return str(path)


def dry_run(capsys: pytest.CaptureFixture[str], config: str, *argv: str) -> dict[str, Any]:
    assert encode.run(["--config", config, "--dry-run", *argv]) == 0, capsys.readouterr().err
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("RESULT ")]
    found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return found


def test_dry_run_says_what_each_run_of_a_chain_would_do(
    tmp_path: Path, tiny_bundle: Path, ray_local: None, capsys: pytest.CaptureFixture[str]
):
    config = config_of(tmp_path, tiny_bundle)
    before = sorted(tmp_path.rglob("*"))
    first = dry_run(capsys, config, "--run", write(tmp_path / "run.txt", ENCODE))
    (tmp_path / "run.txt").unlink()
    assert sorted(tmp_path.rglob("*")) == before
    assert (first["run"], first["waves"], first["waves_done"], first["buckets"]) == (
        "first plan of a new table",
        1,
        0,
        16,
    )
    assert (first["files_to_read"], first["parts"], first["actors"]) == (1, 16, 2)
    assert first["hours"] > 0
    assert first["put_requests"] > first["parts"]

    given = deployment(tiny_bundle, tmp_path / "table", source={"paths": [str(tmp_path / "corpus")]}, buckets=16)
    encoded = encode_corpus(given)
    after = dry_run(capsys, config)
    assert (after["run"], after["waves_done"], after["put_requests"]) == ("nothing to do", 1, 0)
    (tmp_path / "corpus" / "b.jsonl").write_text(json.dumps({"_id": "new", "title": "t", "text": "new fox"}))
    increment = dry_run(capsys, config)
    assert (increment["run"], increment["files_to_read"], increment["files_kept"]) == ("increment", 1, 1)
    assert increment["follows"] == encoded.plan


@pytest.mark.parametrize("argv", [["--run", "run.txt"], ["--dry-run", "--abandon", "0123456789"]])
def test_options_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
):
    assert encode.run(["--config", config_of(tmp_path, tiny_bundle), *argv]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
