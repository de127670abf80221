"""Jobs ask nobody that docs/security.md does not list, and leave files only where settings and documentation say."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.namespaces import ROOT, Machine, missing, network
from tests.outbound.gateway import Gateway, gateway

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(missing()), reason=missing())]

_DATA = "/tmp/data"  # everything that the settings name
_NOTE = "not in the table of docs/security.md: turn it off by default (lsr_prod/telemetry.py), or list it there"
# Files that are left: settings, the cache, the token of Ray, the sessions of Ray in the temporary folder; and our own.
_EXPECTED = re.compile(
    r"/tmp/(data/|home/\.cache/lsr_prod/|home/\.ray/auth_token$|(lsr-\d+/)?ray/|lsr-\d+/haproxy/|resolv\.conf$)"
)
_WORDS = ["lock", "thread", "json", "string", "square", "root", "number", "socket", "path", "file", "array", "term"]
_PATIENCE_S = 40.0
_ORT = "name mobile.events.data.microsoft.com"
_ASK = """
import json, sys, time, urllib.request
for _ in range(600):
    try:
        request = urllib.request.Request("http://127.0.0.1:8123/search", json.dumps({"text": "a lock"}).encode())
        sys.exit(0 if json.load(urllib.request.urlopen(request, timeout=30))["hits"] else 1)
    except OSError:
        time.sleep(0.2)
sys.exit("no answer")
"""


def allowed(machine: str) -> set[str]:
    """Return the names and addresses that docs/security.md lists as asked by default."""
    section = (ROOT / "docs" / "security.md").read_text().split("## What leaves the machine\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    asked, state = rows[0].index("who is asked"), rows[0].index("by default")
    names = [name for row in rows[2:] if row[state] == "asked" for name in re.findall(r"`([^`]+)`", row[asked])]
    return {machine if name == "<host name>" else name for name in names}


def asked(seen: set[str]) -> set[str]:
    """Return the names and addresses of recorded lines."""
    return {line.split()[1] for line in seen}


def corpus(folder: Path) -> None:
    """Write documents, queries, judgments and training pairs."""
    folder.mkdir()
    texts = [f"{first} {second}" for first in _WORDS for second in _WORDS]

    def write(name: str, rows: list[dict[str, str]]) -> None:
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    write("corpus.jsonl", [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)])
    write("queries.jsonl", [{"_id": f"q{number}", "text": word} for number, word in enumerate(_WORDS)])
    write("pairs.jsonl", [{"query": text.split()[0], "positive": text} for text in texts])
    judged = "".join(f"q{number}\td{number * len(_WORDS)}\t1\n" for number in range(len(_WORDS)))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


def deployment() -> dict[str, Any]:
    """Return the settings of all jobs."""
    table, bundle, index = f"{_DATA}/table", f"{_DATA}/bundle", f"{_DATA}/index"
    data = {"paths": [f"{_DATA}/in/pairs.jsonl"], "kind": "pairs"}
    stage = {"data": data, "batch": {"queries": 4}, "steps": 2, "objective": {"losses": [{"loss": "info_nce"}]}}
    judged = {"queries": f"{_DATA}/in/queries.jsonl", "qrels": f"{_DATA}/in/qrels.tsv"}
    return {
        "ray": {"num_cpus": 2},
        "source": {"paths": [f"{_DATA}/in/corpus.jsonl"], "text_fields": ["text"], "stored_fields": ["text"]},
        "train": {
            "model": f"{_DATA}/model", "output": f"{_DATA}/trained", "work": f"{_DATA}/work", "workers": 1,
            "cpus_per_worker": 1, "stages": [stage],
        },
        "export": {"model": f"{_DATA}/trained", "output": bundle, "precision": "int8"},
        "encode": {"bundle": bundle, "table": table, "actors": 1, "buckets": 2},
        "index": {"table": table, "bundle": bundle, "output": index, "text_fields": ["text"], "bm25": True},
        "evaluate": {"index": index, **judged, "output": f"{_DATA}/evaluation"},
        "serve": {"index": index, "cpus": 0.01, "http_port": 8123},
    }  # fmt: skip


@pytest.fixture
def way_out(tmp_path: Path) -> Iterator[tuple[Machine, Gateway]]:
    """A machine that can reach nobody, whose attempts are recorded."""
    with network() as machines, gateway(machines, tmp_path / "recorded") as out:
        machine = machines.add("job")
        out.connect(machine)
        corpus(tmp_path / "in")
        machine.copy_in(tmp_path / "in", f"{_DATA}/in")
        machine.write(f"{_DATA}/d.yaml", yaml.safe_dump(deployment()))
        yield machine, out


def run(machine: Machine, *arguments: str, environment: Mapping[str, str] | None = None, data: str = "") -> str:
    """Run a subcommand in an environment that has nothing but a path and a home folder; returns its output."""
    command = [sys.executable, "-m", "lsr_prod", *arguments]
    done = machine.run(command, {"PYTHONPATH": str(ROOT), **(environment or {})}, data=data)
    assert done.returncode == 0, done.stderr
    return done.stdout


def left(machine: Machine) -> list[str]:
    """Return the files that are left where nothing says so; a checkout below ``/tmp`` is mounted there."""
    found = machine.run(["find", "/tmp", "/var/tmp", "/dev/shm", "-xdev", "-type", "f"]).stdout.splitlines()
    assert any(path.startswith(_DATA) for path in found)
    return [path for path in found if not _EXPECTED.match(path)]


@pytest.mark.long
def test_encode_index_and_search_ask_nobody(way_out: tuple[Machine, Gateway], tiny_bundle: Path) -> None:
    machine, out = way_out
    machine.copy_in(tiny_bundle, f"{_DATA}/bundle")
    for job in ("encode", "index build"):
        run(machine, *job.split(), "--config", f"{_DATA}/d.yaml")
    assert " terms: " in run(machine, "search", f"{_DATA}/index", data="a lock\n")
    assert asked(out.recorded()) - allowed("job") == set(), _NOTE
    assert left(machine) == []
    # The same search is noticed where the user turns telemetry on, so nothing was overlooked.
    search = [sys.executable, "-m", "lsr_prod", "search", f"{_DATA}/index"]
    inside = machine.inside(search, {"PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "0"})
    with subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reporting:
        assert reporting.stdin is not None
        reporting.stdin.write(b"a lock\n")
        reporting.stdin.flush()
        until = time.monotonic() + _PATIENCE_S  # reports are sent in batches
        while _ORT not in out.recorded() and time.monotonic() < until:
            time.sleep(0.1)
    assert _ORT in out.recorded()
    assert any("onnxruntime" in path for path in left(machine))


@pytest.mark.slow
def test_every_job_asks_nobody(way_out: tuple[Machine, Gateway], tiny_model: Path, tmp_path: Path) -> None:
    machine, out = way_out
    machine.copy_in(tiny_model, f"{_DATA}/model")
    seen: dict[str, list[str]] = {}

    def note(job: str) -> None:
        if more := sorted(asked(out.recorded()) - allowed("job") - {name for names in seen.values() for name in names}):
            seen[job] = more

    for job in ("doctor", "train", "export", "encode", "index build", "evaluate"):
        run(machine, *job.split(), "--config", f"{_DATA}/d.yaml")
        note(job)
    assert " terms: " in run(machine, "search", f"{_DATA}/index", data="a lock\n")
    run(machine, "inspect", "query", f"{_DATA}/index", "a lock", "--output", f"{_DATA}/pages")
    run(machine, "inspect", "index", f"{_DATA}/index", "--output", f"{_DATA}/pages")
    run(machine, "inspect", "run", f"{_DATA}/work", "--output", f"{_DATA}/pages")
    note("search and pages")
    serve = [sys.executable, "-m", "lsr_prod", "serve", "--local", "--config", f"{_DATA}/d.yaml"]
    machine.start(serve, {"PYTHONPATH": str(ROOT)}, log=tmp_path / "serve.log")
    answered = machine.run([sys.executable, "-c", _ASK])
    assert answered.returncode == 0, answered.stderr + (tmp_path / "serve.log").read_text()
    time.sleep(_PATIENCE_S)
    note("serve")
    assert seen == {}, _NOTE
    assert left(machine) == []
