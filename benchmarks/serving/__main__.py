"""How many searches does a server answer, compared with a server that answers a constant, and what is lost by a kill?

    python -m benchmarks.serving [--index FOLDER] [--queries FILE] [--seconds 12] [--only bare,serve]

Loads three servers in turn with autocannon (https://github.com/mcollina/autocannon), a generator of the npm registry,
with 1, 8, 64 and 256 connections that ask again at once: a bare FastAPI application (``bare``), ``examples/backend``
with one worker and hybrid queries (``backend``), and ``lsr-prod serve --local`` (``serve``). Generator and servers
share the cores of this machine. Without ``--index`` and without an index of the quickstart, runs the quickstart first.

Then ``kill``: two shard groups of two replicas, and two routers; a replica and a router are killed while eight
connections ask.

RESULT, for each server and number of connections, such as ``serve.64``: ``answers_per_s``, ``p50``, ``p99``,
``longest`` (ms), ``refused`` (status 503 per second), ``failed`` (other responses and broken connections), ``cpu_ms``
of an answer, and ``of_bare``, the ratio of its answers. ``answers_per_s``: of ``serve`` with 64 connections;
``of_backend``: its ratio; ``p50_ms``: of ``serve`` with one. ``goodput.serve`` and ``goodput.backend``: answers with
256 connections, as a share of the best. ``killed_replica.errors``, ``killed_router.refused``,
``killed_router.failed``, ``killed_router.gap_s``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.serving.generator import Load, install, start_load
from benchmarks.serving.servers import Server, backend, bare, kill, served
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table

CONNECTIONS = (1, 8, 64, 256)
SERVERS = ("bare", "backend", "serve")
QUERIES = 40  # autocannon prepares them for each connection before it reads an answer
WARM_S, KILL_S, KILL_CONNECTIONS = 2.0, 10.0, 8
QUICKSTART = Path(".quickstart")


def main(argv: Sequence[str]) -> int:
    """Run, print the tables and ``RESULT {json}``."""
    given = _options().parse_args(argv)
    install()
    index = given.index or _quickstart_index()
    texts = _texts(given.queries)
    measured: dict[str, Load] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in SERVERS:
            if name in given.only:
                with _server(name, index, Path(folder)) as server:
                    measured |= _measure(name, server, _requests(name, texts), given.seconds)
        values = _values(measured)
        if "kill" in given.only:
            values |= _kills(index, Path(folder), _requests("serve", texts))
    print_result(values)
    return 0


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    options.add_argument("--index", type=Path, help="default: that of the quickstart")
    options.add_argument("--queries", type=Path, default=QUICKSTART / "collection/queries.jsonl")
    options.add_argument("--seconds", type=float, default=12.0)
    options.add_argument("--only", type=lambda text: text.split(","), default=[*SERVERS, "kill"])
    return options


def _quickstart_index() -> Path:
    index = QUICKSTART / "index"
    if not index.is_dir():
        command = [sys.executable, "-m", "quickstart", "--config", "quickstart/deployment.yaml"]
        subprocess.run(command, check=True)
    return index


def _texts(queries: Path) -> list[str]:
    with queries.open(encoding="utf-8") as file:
        return [json.loads(line)["text"] for line, _ in zip(file, range(QUERIES), strict=False)]


def _requests(server: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    if server == "serve":
        headers = {"content-type": "application/json"}
        return [
            {"method": "POST", "path": "/search", "headers": headers, "body": json.dumps({"text": text, "k": 10})}
            for text in texts
        ]
    words = {"hybrid": "true"} if server == "backend" else {}
    return [{"method": "GET", "path": "/search?" + urlencode({"q": text, **words})} for text in texts]


def _server(name: str, index: Path, folder: Path) -> AbstractContextManager[Server]:
    match name:
        case "bare":
            return bare()
        case "backend":
            return backend(index)
        case _:
            return served(index, folder)


def _measure(name: str, server: Server, requests: list[dict[str, Any]], seconds: float) -> dict[str, Load]:
    start_load(server.url, requests, connections=8, seconds=WARM_S).result()
    found = {}
    for connections in CONNECTIONS:
        before = server.cpu_s()
        load = start_load(server.url, requests, connections=connections, seconds=seconds).result()
        answered = max(1.0, load.answers_per_s * seconds)
        load = replace(load, cpu_ms=round((server.cpu_s() - before) * 1e3 / answered, 3))
        found[f"{name}.{connections}"] = load
        print_table(f"{name}, {connections} connections", vars(load))
    return found


def _values(measured: dict[str, Load]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, load in measured.items():
        values |= {f"{key}.{name}": value for name, value in vars(load).items() if name != "gap_s"}
        if base := measured.get("bare." + key.partition(".")[2]):
            values[f"{key}.of_bare"] = round(load.answers_per_s / base.answers_per_s, 3)
    for name in SERVERS[1:]:
        answers = [load.answers_per_s for key, load in measured.items() if key.startswith(name)]
        if answers:
            values[f"goodput.{name}"] = round(answers[-1] / max(answers), 3)
    if "serve.64" in measured:
        values |= {"answers_per_s": measured["serve.64"].answers_per_s, "p50_ms": measured["serve.1"].p50}
        if "backend.64" in measured:
            ratio = measured["serve.64"].answers_per_s / measured["backend.64"].answers_per_s
            values["of_backend"] = round(ratio, 3)
    return values


def _kills(index: Path, folder: Path, requests: list[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    with served(index, folder, shard_groups=2, replicas=2, routers=2, cpus=0.1) as server:
        start_load(server.url, requests, connections=KILL_CONNECTIONS, seconds=WARM_S).result()
        for kind, deployment in (("replica", "shards-0"), ("router", "router")):
            load = start_load(server.url, requests, connections=KILL_CONNECTIONS, seconds=KILL_S)
            time.sleep(KILL_S / 3)
            kill(server, deployment)
            found = load.result()
            print_table(f"a killed {kind}", vars(found))
            refused = round(found.refused * KILL_S)
            if kind == "replica":
                values["killed_replica.errors"] = found.failed + refused
            else:
                values |= {"killed_router.refused": refused, "killed_router.failed": found.failed}
            values |= {f"killed_{kind}.gap_s": found.gap_s, f"killed_{kind}.answers_per_s": found.answers_per_s}
    return values


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
