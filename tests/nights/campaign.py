"""Nights of the job reindex over an object store, disturbed, and compared with a full rebuild after each good one."""

import json
import random
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lsr_prod import Searcher
from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.errors import PublicationError
from lsr_prod.indexing import build_index
from lsr_prod.storage import Store
from lsr_prod.storage.folders import save_folder
from lsr_prod.storage.node_cache import NodeCache
from lsr_prod.storage.publications import find_current_publication
from tests.faults.cluster import kill
from tests.indexing.contents import dump
from tests.nights.cluster import NightCluster
from tests.nights.feed import GOLDEN, Feed
from tests.nights.schedule import GATES, Night
from tests.storage.node_caches import fetch_current_version

__all__ = ["Campaign", "Tally"]

_PATIENCE_S = 600
_ATTEMPTS = 4  # of a night that is disturbed
_QUERIES = ("zinc shelf", "river bridge harbor", "python module parser", "memory", "network client server lamp")


@dataclass(slots=True)
class Tally:
    """Errors and figures of a campaign.

    Attributes:
        nights: nights with a verified result or a refused version.
        lost: documents that the index lacks.
        stale: documents whose content, or queries whose hits, are not those of a full rebuild.
        doubled: documents that the index has more often than once, or that no delivery has.
        refused: versions that the expected gate refused.
        failed: runs that failed, of nights on which nothing was killed.
        seen: publications that the reader opened, by number.
        events: kills and runs, by kind.
        problems: description of each error.
    """

    nights: int = 0
    lost: int = 0
    stale: int = 0
    doubled: int = 0
    refused: int = 0
    failed: int = 0
    seen: dict[int, str] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def note(self, kind: str, count: int, sentence: str) -> None:
        """Add to a count, with an explanation."""
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            self.problems.append(f"{kind} {count}: {sentence}")


class Campaign:
    """Runs nights on a cluster.

    Args:
        cluster: runs the jobs; this process is in the Ray session of ``own_ray``.
        folder: of configurations, logs and rebuilds.
        root: URI of everything that the nights read and write.
        bundles: bundles of the models, in the order in which they are used.
        documents: documents of the first delivery.
        seed: of deliveries and moments of kills.
    """

    def __init__(
        self,
        cluster: NightCluster,
        folder: Path,
        root: str,
        bundles: list[Path],
        documents: int,
        seed: int,
    ) -> None:
        self._cluster, self._folder, self._root, self._options = cluster, folder, root, cluster.options
        options = cluster.options
        self._rng = random.Random(seed)
        self._feed = Feed(Store(f"{root}/corpus", options), documents, seed)
        self._index = Store(f"{root}/index", options)
        for number, bundle in enumerate(bundles):
            save_folder(bundle, f"{root}/bundles/{number}", options)
        texts = Store(f"{root}/evaluation", options)
        queries = [json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(_QUERIES)]
        texts.put_new("queries.jsonl", ("\n".join(queries) + "\n").encode())
        texts.put_new(
            "qrels.tsv", b"query-id\tcorpus-id\tscore\n" + b"".join(b"%d\tdoc00000\t1\n" % n for n in range(5))
        )
        golden = [json.dumps({"_id": doc_id, "text": text, "must": [doc_id]}) for doc_id, text in GOLDEN.items()]
        texts.put_new("golden.jsonl", ("\n".join(golden) + "\n").encode())
        self._calls = {"full": 0, "delta": 0}
        self._verified: set[str] = set()
        self.tally = Tally()

    def run(self, nights: list[Night]) -> Tally:
        """Run the nights while a reader follows the index; return what was found."""
        done = threading.Event()
        reader = threading.Thread(target=self._read, args=(done,))
        reader.start()
        try:
            model = -1
            for night in nights:
                began = time.monotonic()
                full = night.model != model
                model = night.model
                result = self._night(night, full=full)
                self._report(night, result, time.monotonic() - began)
                self.tally.nights += 1
        finally:
            done.set()
            reader.join()
        unverified = {number: sha for number, sha in self.tally.seen.items() if sha not in self._verified}
        self.tally.note("stale", len(unverified), f"the reader opened versions of no good night: {unverified}")
        return self.tally

    def _night(self, night: Night, *, full: bool) -> dict[str, Any]:
        if night.number > 1:
            self._feed.change()
        self._feed.deliver(night.bad)
        config = self._write_config(night.model)
        if night.bad:
            self._refused(config, night)
            return {}
        kind = "full" if full else "delta"
        result: dict[str, Any] | None = None
        if night.kill == "driver":
            calls = min((one for one in self._calls.values() if one), default=30_000)  # the run is not over by then
            result = self._finish(self._start(config, 1 + int(calls * self._rng.uniform(0.02, 0.98))))
        elif night.kill:
            result = self._finish(self._disturbed(config, night.kill))
        elif night.twice:
            runs = [self._start(config) for _ in range(2)]
            results = [self._finish(run) for run in runs]
            self.tally.events["started twice"] += 1
            self.tally.note("failed", results.count(None), f"night {night.number}: of two runs started at once")
            finished = [one for one in results if one]
            result = max(finished, key=lambda one: int(one["encode.bytes_written"]), default=None)
        attempts = 0
        while result is None:
            attempts += 1
            if attempts > _ATTEMPTS:
                raise RuntimeError(f"night {night.number} failed {_ATTEMPTS} times; see {self._folder / 'nights.log'}")
            self._cluster.replace_dead()
            result = self._finish(self._start(config))
        if not night.kill and not night.twice:
            self._calls[kind] = result["calls"]
        self._verify(night, result)
        return result

    def _write_config(self, model: int) -> Path:
        root, place = self._root, self._folder / "night.yaml"
        bundle = f"{root}/bundles/{model}"
        sections = {
            "ray": self._cluster.ray,
            "storage": {"options": self._options},
            "source": {"paths": [f"{root}/corpus/*.jsonl"], "text_fields": ["text"], "stored_fields": ["text"]},
            "encode": {
                "bundle": bundle,
                "table": f"{root}/table",
                "buckets": 2,
                "on_duplicate": "last",
                "max_bad_fraction": 0.9,
                "impact_step": 0.02,
            },
            "index": {
                "bundle": bundle,
                "table": f"{root}/table",
                "output": f"{root}/index",
                "text_fields": ["text"],
                "keep_publications": 3,
                "keep_hours": 0.05,
                "max_delta": 0.3,
            },
            "gates": {
                "golden_queries": f"{root}/evaluation/golden.jsonl",
                "canary_queries": f"{root}/evaluation/queries.jsonl",
                "min_overlap": 0.1,
                "max_growth": 0.5,
            },
            "evaluate": {
                "index": f"{root}/index",
                "queries": f"{root}/evaluation/queries.jsonl",
                "qrels": f"{root}/evaluation/qrels.tsv",
                "measures": ["RR@10"],
                "thresholds": [0.0],
                "k": 10,
                "bm25": False,
            },
        }
        place.write_text(yaml.safe_dump(sections))
        return place

    def _start(self, config: Path, calls: int = 0) -> "subprocess.Popen[str]":
        return self._cluster.start(config, calls, self._folder / "nights.log")

    def _finish(self, run: "subprocess.Popen[str]") -> dict[str, Any] | None:
        """Return the result of a run and its number of calls; None: it was killed or failed."""
        output, _ = run.communicate(timeout=_PATIENCE_S)
        self.tally.events[{0: "finished", -9: "killed: driver"}.get(run.returncode, "failed")] += 1
        if run.returncode:
            return None
        (line,) = [line for line in output.splitlines() if line.startswith("RESULT ")]
        result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
        return {**result, "calls": int(output.rpartition("CALLS ")[2])}

    def _disturbed(self, config: Path, victim: str) -> "subprocess.Popen[str]":
        """Start the job and kill an encoder, or the node that runs it."""
        run = self._start(config)
        while run.poll() is None:
            if encoders := self._cluster.encoders():
                time.sleep(self._rng.uniform(0.0, 0.5))
                rng = self._rng
                if self._cluster.kill_node(rng) if victim == "node" else kill(rng.choice(encoders)):
                    self.tally.events[f"killed: {victim}"] += 1
                break
            time.sleep(0.02)
        if victim == "node":
            time.sleep(0.2)
            self._cluster.replace_dead()
        return run

    def _refused(self, config: Path, night: Night) -> None:
        """Run a night whose version a gate must refuse: the publication stays."""
        before = find_current_publication(self._index)
        run = self._start(config)
        run.communicate(timeout=_PATIENCE_S)
        reason = (self._folder / "nights.log").read_text().splitlines()[-1]
        refused = run.returncode == 1 and f"({GATES[night.bad]}: " in reason
        self.tally.refused += int(refused)
        self.tally.note("failed", int(not refused), f"night {night.number}: {night.bad} delivery: {reason}")
        after = find_current_publication(self._index)
        self.tally.note("stale", int(after != before), f"a bad delivery was published: {after}")

    def _verify(self, night: Night, result: dict[str, Any]) -> None:
        """Compare the index with the deliveries and with an index that is built from nothing."""
        cache = NodeCache(self._folder / "cache")
        mine, publication = fetch_current_version(cache, self._index)
        try:
            found = dump(mine)
        except AssertionError as error:
            self.tally.note("doubled", 1, f"night {night.number}: {error}")
            found = {}
        wanted = self._feed.documents
        self.tally.note(
            "lost", len(wanted.keys() - found.keys()), f"night {night.number}: {wanted.keys() - found.keys()}"
        )
        more = found.keys() - wanted.keys()
        self.tally.note("doubled", len(more), f"night {night.number}: deleted documents are found: {more}")
        texts = [doc_id for doc_id, (_, text) in found.items() if text != wanted.get(doc_id, text)]
        self.tally.note("stale", len(texts), f"night {night.number}: texts of {texts}")
        whole = self._rebuild(night)
        rebuilt = dump(whole)
        changed = [doc_id for doc_id in found.keys() & rebuilt.keys() if found[doc_id] != rebuilt[doc_id]]
        self.tally.note("stale", len(changed), f"night {night.number}: vectors of {changed}")
        searchers = [Searcher.open(place) for place in (mine, whole)]
        for text in _QUERIES:
            hits = [[(hit.doc_id, hit.score) for hit in one.search(text, k=10).hits] for one in searchers]
            self.tally.note("stale", int(hits[0] != hits[1]), f"night {night.number}: hits of {text!r}")
        other = searchers[0].version.bundle_digest != result["encode.bundle_digest"]
        self.tally.note("stale", int(other), f"night {night.number}: the version has another bundle")
        self._verified.add(publication.version)
        del searchers
        cache.release(mine)

    def _rebuild(self, night: Night) -> Path:
        """Encode the delivery into a new table and build a new index from it."""
        place = self._folder / f"rebuild-{night.number}"
        sections = yaml.safe_load((self._folder / "night.yaml").read_text())
        del sections["evaluate"], sections["gates"]
        sections["ray"] = self._cluster.own_ray
        sections["encode"]["table"] = sections["index"]["table"] = f"{place}/table"
        sections["index"]["output"] = f"{place}/index"
        deployment = Deployment.model_validate(sections)
        encode_corpus(deployment)
        build_index(deployment)
        return place / "index"

    def _read(self, done: threading.Event) -> None:
        """Follow the index as a reader does, and record every version that becomes visible."""
        searcher: Searcher | None = None
        while not done.wait(0.2):
            try:
                if searcher is None:
                    cache = self._folder / "reader"
                    searcher = Searcher.open(self._index.uri, cache=cache, storage_options=self._options)
                else:
                    searcher.refresh()
            except PublicationError:
                continue  # nothing is published yet
            except Exception as error:  # noqa: BLE001 - a reader must not see any
                self.tally.note("stale", 1, f"the reader failed: {error!r}")
                continue
            self.tally.seen[searcher.publication.number] = searcher.publication.version

    def _report(self, night: Night, result: dict[str, Any], seconds: float) -> None:
        what = [f"{night.bad} delivery refused"] if night.bad else [str(result["index.mode"])]
        if not night.bad:
            self.tally.events[f"index: {result['index.mode']}"] += 1
            self.tally.events["tables retired"] += result["collect.tables"]
        what += [f"{night.kill} killed"] if night.kill else []
        what += ["started twice"] if night.twice else []
        if night.bad:
            print(f"night {night.number}: {what[0]}, {seconds:.0f} s, {len(self.tally.problems)} problems", flush=True)
            return
        read, written = (
            result.get(f"encode.bytes_{verb}", 0) + (result.get("index.bytes_written", 0) if verb == "written" else 0)
            for verb in ("read", "written")
        )
        print(
            f"night {night.number}: model {night.model}, {', '.join(what)}, {len(self._feed.documents)} documents, "
            f"{read:,} bytes read, {written:,} written, {seconds:.0f} s, {len(self.tally.problems)} problems",
            flush=True,
        )
