"""Secrets in the environment of every job are in no output, log, artifact, report, error or process title."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import psutil
import pytest

from lsr_prod.jobs.command import COMMANDS
from tests.secrets.canaries import environment, leaks, readable

ROOT = Path(__file__).parents[2]
QUICK = (
    "encode",
    "index build",
    "table status",
    "table quarantine",
    "search",
    "index takedown",
    "index publications",
    "index catalog",
    "reindex",
    "table maintain",
)


class Titles:
    """Titles of a process and its descendants, collected until it ends."""

    def __init__(self, root: int) -> None:
        self.found: set[str] = set()
        self._root, self._stop = psutil.Process(root), threading.Event()
        self._thread = threading.Thread(target=self._collect)

    def __enter__(self) -> "Titles":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _collect(self) -> None:
        while not self._stop.wait(0.2):
            try:
                processes = self._root.children(recursive=True)
            except psutil.NoSuchProcess:
                return
            for one in processes:
                try:
                    self.found.add(" ".join(one.cmdline()))
                except psutil.Error:
                    continue  # it ended in the meantime


def objects(prefix: str, options: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the objects with this prefix, with the rows of Parquet files."""
    client = boto3.client("s3", endpoint_url=options["aws_endpoint"], region_name="us-east-1")
    with tempfile.TemporaryDirectory() as folder:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="lsr", Prefix=prefix):
            for one in page.get("Contents", []):
                target = Path(folder) / one["Key"]
                target.parent.mkdir(parents=True, exist_ok=True)
                client.download_file("lsr", one["Key"], str(target))
        yield from readable(Path(folder))


@pytest.mark.long
@pytest.mark.parametrize("commands", [QUICK, pytest.param((), marks=pytest.mark.slow)], ids=["quick", "all"])
def test_secrets_of_the_environment_are_in_no_output(
    commands: tuple[str, ...], tmp_path: Path, tiny_model: Path, tiny_bundle: Path, s3_options: dict[str, str]
) -> None:
    secrets, searched = environment()
    assert len(searched) >= 20
    places = (tmp_path, tiny_model, tiny_bundle)
    home = tmp_path / "home"
    home.mkdir()
    with tempfile.TemporaryDirectory(prefix="ray-") as ray_folder:  # short: it starts the paths of sockets
        variables = {**os.environ, **secrets, "HOME": str(home), "RAY_TMPDIR": ray_folder, "RAY_AUTH_MODE": "token"}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.secrets.jobs", *map(str, places), json.dumps(s3_options), *commands],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with Titles(process.pid) as titles:
            output, errors = process.communicate(b"lock thread\n", timeout=900)
        texts = [("output", output), ("errors", errors), ("titles", "\n".join(titles.found).encode())]
        logs = list(readable(Path(ray_folder)))
        assert process.returncode == 0, errors.decode()
        (line,) = [line for line in output.decode().splitlines() if line.startswith("CODES ")]
        codes = json.loads(line.removeprefix("CODES "))
        assert [name for name, code, expected, _ in codes if code != expected] == [], errors.decode()
        stored = [*readable(tmp_path), *objects(f"canaries/{tmp_path.name}/", s3_options)]
        assert len(logs) > 10
        assert len(stored) > 30
        assert any("gcs_server" in title for title in titles.found)
        assert leaks([*texts, *logs, *stored], searched) == set()
        assert commands or {name for name, *_ in codes} == set(COMMANDS), "add new commands to tests/secrets/jobs.py"


def test_search_finds_a_planted_secret(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, searched = environment()
    (tmp_path / "a.log").write_text(f"token {searched['RAY_AUTH_TOKEN']}")
    pq.write_table(pa.table({"text": [f"with {searched['HF_TOKEN']}"] * 2}), tmp_path / "b.parquet", compression="zstd")
    assert {name for name, _ in leaks(readable(tmp_path), searched)} == {"RAY_AUTH_TOKEN", "HF_TOKEN"}
