"""Output never fails the command that it describes: locales without UTF-8, closed pipes, full disks, lost terminals."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod.storage import Store
from lsr_prod.storage.publications import find_current_publication
from tests.indexing.corpus import Doc
from tests.indexing.increments import deployment, make_world
from tests.quick import first_quick

# Python cannot import compiled modules from a path that the encoding of the locale lacks.
needs_ascii_path = pytest.mark.skipif(not sys.prefix.isascii(), reason="the path of Python has characters beyond ASCII")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
CORPUS = {f"doc{i:03d}": Doc({1 + i % 7: 1 + i, 20: 3}, f"text {i}") for i in range(40)}
BAR = """
import os, sys, time
from lsr_prod.encoding.actors.pool import PoolActivity
from lsr_prod.encoding.progress import Progress
from lsr_prod.jobs.terminal.output import protect_output
protect_output()
assert sys.stderr.isatty()
with Progress([1.0], 0, lambda: PoolActivity(1, 0, True, False)) as progress:
    sys.stdin.readline()
    progress.sample()
    time.sleep(0.3)
print("done")
"""


def command(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-m", "lsr_prod", *arguments], text=True, encoding="utf-8", **options)


def closed_pipe() -> int:
    """The end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("output")
    make_world(root, CORPUS)
    return root


@pytest.fixture
def job(world: Path, tmp_path: Path) -> str:
    """The settings of an index job, whose folder has a name that ASCII lacks; it is never run before."""
    index = deployment(world, output=str(tmp_path / "index")).index
    assert index is not None
    settings = {"index": index.model_dump(mode="json", exclude_defaults=True)}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(settings))
    return str(tmp_path / "d.yaml")


def published(tmp_path: Path) -> bool:
    return find_current_publication(Store(str(tmp_path / "index"))) is not None


@pytest.mark.parametrize("place", first_quick(["closed pipe", "/dev/full", "closed"]))
def test_job_finishes_although_its_output_is_lost(job: str, tmp_path: Path, place: str) -> None:
    if place == "closed":
        ran = subprocess.Popen(["sh", "-c", f"'{sys.executable}' -m lsr_prod index build --config {job} >&- 2>&-"])
    else:
        out = closed_pipe() if place == "closed pipe" else os.open(place, os.O_WRONLY)
        ran = command("index", "build", "--config", job, stdout=out, stderr=out)
        os.close(out)
    assert ran.wait(120) == 0
    assert published(tmp_path)


@pytest.mark.long
@needs_ascii_path
def test_job_in_a_locale_without_utf8_prints_its_tables_in_ascii(job: str, tmp_path: Path) -> None:
    ran = command(
        "index", "build", "--config", job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **ASCII}
    )
    out, err = ran.communicate(timeout=120)
    assert ran.returncode == 0, err
    assert out.isascii()
    assert "| publication" in out
    assert json.loads(out.splitlines()[-1].removeprefix("RESULT "))["publication"] == 1


@pytest.mark.long
@needs_ascii_path
def test_search_in_a_locale_without_utf8_reads_utf8_and_escapes_what_it_cannot_print(text_index: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ran = command("search", str(text_index), **pipes, env={**os.environ, **ASCII})
    out, err = ran.communicate("wait for a lock, für später\n", timeout=120)
    assert (ran.returncode, err) == (0, "")
    assert " documents \\xb7 publication 1 " in out
    assert "threading.Lock" in out


def test_search_ends_quietly_when_its_reader_leaves(text_index: Path) -> None:
    out = closed_pipe()
    with subprocess.Popen(["yes", "lock"], stdout=subprocess.PIPE) as queries:  # never ends by itself
        ran = command("search", str(text_index), stdin=queries.stdout, stdout=out, stderr=subprocess.PIPE)
        os.close(out)
        assert queries.stdout is not None
        queries.stdout.close()
        _, err = ran.communicate(timeout=60)
    assert (ran.returncode, err) == (141, "")


@pytest.mark.long
def test_help_and_lists_end_quietly_when_nobody_reads_them(text_index: Path) -> None:
    for arguments, code in [(["--help"], 0), (["index", "--help"], 0), (["index", "catalog", str(text_index)], 141)]:
        out = closed_pipe()
        ran = command(*arguments, stdout=out, stderr=subprocess.PIPE)
        os.close(out)
        _, err = ran.communicate(timeout=60)
        assert (ran.returncode, err) == (code, "")


def test_list_that_a_full_disk_refuses_is_one_sentence(text_index: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = command("index", "catalog", str(text_index), "--json", stdout=full, stderr=subprocess.PIPE)
        _, err = ran.communicate(timeout=60)
    assert ran.returncode == 1
    assert err.startswith("lsr-prod index catalog: stdout cannot be written ([Errno 28]")
    assert len(err.splitlines()) == 1


def test_output_of_a_pipe_that_does_not_block_is_complete(text_index: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    script = "from lsr_prod.jobs.terminal import output as o; o.protect_output(); o.say('x' * 1_000_000)"
    ran = subprocess.Popen([sys.executable, "-c", script], stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert len(lines.read()) == 1_000_001
    assert ran.wait(60) == 0


@pytest.mark.long
def test_bar_on_a_terminal_that_goes_away_does_not_end_the_job() -> None:
    master, terminal = pty.openpty()
    ran = subprocess.Popen(
        [sys.executable, "-c", BAR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=terminal, text=True
    )
    os.close(terminal)
    assert os.read(master, 1)
    os.close(master)
    out, _ = ran.communicate("\n", timeout=60)
    assert (ran.returncode, out) == (0, "done\n")
