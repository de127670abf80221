"""The jobs that meet a full disk, each on a world of some tens of documents."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["JOBS", "Job", "prepare"]


@dataclass(frozen=True, slots=True)
class Job:
    """A command that is run on a full disk.

    Attributes:
        name: for the report.
        arguments: returns the command line; called with the inputs and with the folder on the small disk.
        begin: copies what the job changes from the inputs to the small disk.
        whole: patterns of folders on the disk that appear whole or not at all.
        last: pattern of a file that appears after everything else; "": there is none.
        ignored: prefixes of records that are no result, such as a log of builds.
        on_ray: the job starts Ray, so that it runs in a process of its own and meets full disks only.
        results: patterns of the files that are equal in every run of a job on Ray; of others two runs find them.
        stdin: its input.
        share: one of this many points is taken, since a run takes seconds.
    """

    name: str
    arguments: Callable[[Path, Path], list[str]]
    begin: Callable[[Path, Path], None] = lambda *_: None
    whole: tuple[str, ...] = ()
    last: str = ""
    ignored: tuple[str, ...] = ()
    on_ray: bool = False
    results: tuple[str, ...] = ()
    stdin: str = ""
    share: int = 1


_WIDE = 1500  # documents of an index whose mapped arrays have more than one page
_QUERIES = {f"q{i}": f"w{i} w3" for i in range(1, 41, 4)}


def prepare(given: Path, at: Path, s3: Mapping[str, str]) -> None:
    """Make the inputs of all jobs.

    Args:
        given: an empty folder on a disk with room.
        at: the folder on the small disk, for settings.
        s3: options of an object store, which gets an index.
    """
    from lsr_prod.config import ExportSettings
    from lsr_prod.indexing import build_index
    from lsr_prod.jobs.command import main
    from lsr_prod.model import SparseEncoder
    from lsr_prod.model.export import export_bundle
    from lsr_prod.storage import Store
    from tests.contrib.click_sets.logs import random_rows
    from tests.indexing.corpus import encode_corpus, make_table
    from tests.indexing.increments import Increment, change_table, deployment
    from tests.indexing.remote import upload_current
    from tests.model.tiny import tiny_checkpoint
    from tests.training.small import small_training

    checkpoint = tiny_checkpoint(given / "checkpoint", "bert")
    SparseEncoder.load(checkpoint).save(given / "model")
    export_bundle(ExportSettings(model=str(given / "model"), output=str(given / "bundle")))
    texts = {f"d{i}": f"w{i} W{i + 1} w{i + 2}" for i in range(1, 81, 2)}
    _write_collection(given, texts)
    clicks = ({"query": row.query, "doc_id": row.document, "title": row.title} for row in random_rows(11, 120, 1500))
    _write_lines(given / "clicks.jsonl", clicks)
    corpus = encode_corpus(given / "bundle", texts)
    make_table(given / "table", corpus, given / "bundle")
    docs = list(corpus.values())
    make_table(given / "wide", {f"d{i}": docs[i % len(docs)] for i in range(_WIDE)}, given / "bundle")
    build_index(deployment(given, **_INDEX))
    if main(_export(given, given, "wide")):
        raise RuntimeError("the vectors of a table were not exported")
    upload_current(given / "index", Store("s3://lsr/index", dict(s3)))
    shutil.copytree(given / "table", given / "grown" / "table")
    more = encode_corpus(given / "bundle", {"d1": "w9 w7", "new": "w5 w3"})
    change_table(given / "grown", Increment(more, ("d3",)))
    training = small_training(given, checkpoint, steps=6)
    training["train"] |= {"work": f"{at}/work", "output": f"{at}/out"}
    index = {"bundle": f"{given}/bundle", "output": f"{at}/index", "shards": 2, **_INDEX}
    source = {"paths": [f"{given}/corpus.jsonl"], "text_fields": ["text"]}
    encode = {"bundle": f"{given}/bundle", "table": f"{at}/table", "actors": 1, "store_k": 64}
    judged = {name: f"{given}/{file}" for name, file in {"queries": "queries.jsonl", "qrels": "qrels.tsv"}.items()}
    few = {"queries": 1, "distractors": 1}
    vectors = {"bundle": f"{given}/bundle", "table": f"{at}/table"}
    mined = {"paths": [f"{given}/pairs.jsonl"], "kind": "pairs"}
    settings: dict[str, Any] = {
        "export": {"export": {"model": f"{given}/model", "output": f"{at}/bundle"}},
        "index": {"index": {**index, "table": f"{given}/wide", "shards": 1}},
        "takedown": {"index": {**index, "table": f"{given}/table"}},
        "increment": {"index": {**index, "table": f"{given}/grown/table", "max_delta": 0.5, "max_delta_shards": 2}},
        "evaluate": {
            "evaluate": {"index": f"{given}/index", **judged, "runs": f"{at}/runs", "output": f"{at}/evaluation"}
        },
        "encode": {"source": source, "encode": encode},
        "reindex": {
            "source": source,
            "encode": encode,
            "index": {**index, "table": f"{at}/table"},
        },
        "mine": {
            "mine": {
                "data": mined, "positive_id": "pid", "index": f"{given}/index", "output": f"{at}/mined", "negatives": 2,
            }
        },
        "tune": {"tune": {"index": f"{given}/index", **judged, "folds": 2, "output": f"{at}/tuning"}},
        "sweep": {
            "sweep": {
                "models": [{"name": "tiny", "bundle": f"{given}/bundle"}],
                "collections": [{"name": "small", "corpus": f"{given}/corpus.jsonl", **judged}],
                "output": f"{at}/sweep",
            }
        },
        "click-set": {
            "click_set": {
                "paths": [f"{given}/clicks.jsonl"], "output": f"{at}/clicks", "min_clicks": 1,
                "test": few, "validation": few,
            }
        },
        "import": {"vectors": {**vectors, "action": "import", "paths": [f"{given}/wide.jsonl"], "buckets": 2}},
        "score": {
            "score": {
                "data": {"paths": [f"{given}/texts.jsonl"], "kind": "pairs"},
                "teacher": {"kind": "sparse", "model": f"{given}/bundle"}, "output": f"{at}/scores",
            }
        },
        "maintain": {"maintain": {"table": f"{at}/grown/table", "purge": True}},
        "train": training,
    }  # fmt: skip
    for name, sections in settings.items():
        (given / f"{name}.yaml").write_text(yaml.safe_dump(sections))
    (given / "store").write_text(json.dumps([f"--store-option={name}={value}" for name, value in s3.items()]))


_INDEX: dict[str, Any] = {"text_fields": ["text"], "bm25": True}


def _write_collection(given: Path, texts: Mapping[str, str]) -> None:
    for file, rows in (("corpus.jsonl", texts), ("queries.jsonl", _QUERIES)):
        _write_lines(given / file, ({"_id": name, "text": text} for name, text in rows.items()))
    rows = [f"{name}\td{name[1:]}\t1" for name in _QUERIES]
    (given / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    pairs = [(text, f"d{name[1:]}") for name, text in _QUERIES.items()]
    _write_lines(given / "pairs.jsonl", ({"query": text, "pid": positive} for text, positive in pairs))
    _write_lines(given / "texts.jsonl", ({"query": text, "positive": texts[positive]} for text, positive in pairs))


def _write_lines(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _export(given: Path, at: Path, name: str) -> list[str]:
    """Return the arguments that export the vectors of a table as JSONL."""
    options = {"action": "export", "table": given / name, "bundle": given / "bundle", "output": at / f"{name}.jsonl"}
    return ["vectors", *(text for option, value in options.items() for text in (f"--vectors.{option}", str(value)))]


def _settings(name: str, *more: str) -> Callable[[Path, Path], list[str]]:
    commands = {"increment": "index build", "index": "index build", "takedown": "index takedown"}
    commands |= {"maintain": "table maintain", "import": "vectors"}
    return lambda given, _: [*commands.get(name, name).split(), "--config", f"{given}/{name}.yaml", *more]


def _copy(*names: str) -> Callable[[Path, Path], None]:
    def begin(given: Path, at: Path) -> None:
        for name in names:
            shutil.copytree(given / name, at / name)

    return begin


def _store(given: Path) -> list[str]:
    options: list[str] = json.loads((given / "store").read_text())
    return options


_SHARDS = ("world/index/shards/*", "world/index/bundles/*")
_RECORDS = ("world/index/builds/", "world/index/reports/")  # of every attempt, with its times

JOBS = (
    Job(
        "model",  # a default length would be warned about in a further line
        lambda given, at: ["model", f"{given}/checkpoint", f"{at}/model", "--query-max-length", "64"],
        whole=("world/model",),
    ),
    Job("export", _settings("export"), whole=("world/bundle",), share=8),
    Job("index", _settings("index"), whole=_SHARDS, last="world/index/publications/*", ignored=_RECORDS),
    Job(
        "increment", _settings("increment"), begin=_copy("index"), whole=_SHARDS,
        last="world/index/publications/*2.json", ignored=_RECORDS,
    ),
    Job(
        "takedown", _settings("takedown", "--id", "d5"), begin=_copy("index"),
        last="world/index/publications/*2.json", ignored=_RECORDS,
    ),
    Job("evaluate", _settings("evaluate")),
    Job("page", lambda given, at: ["inspect", "index", f"{given}/index", "--output", f"{at}/pages"]),
    Job(
        "search", lambda given, _: ["search", "s3://lsr/index", *_store(given)], stdin="w1 w3\n",
        whole=tuple(f"cache/artifacts/*/*/{name}" for name in ("bundles", "shards", "versions")),
    ),
    Job(
        "pin", lambda _, at: ["index", "pin", f"{at}/index", "--reason", "audit", "--by", "test"], begin=_copy("index"),
        last="world/index/pins/*",
    ),
    Job("tune", _settings("tune"), share=4),
    Job("click-set", _settings("click-set"), last="world/clicks/_manifest.json"),
    Job("import", _settings("import")),
    Job("vectors", lambda given, at: _export(given, at, "wide")),
    Job("encode", _settings("encode"), on_ray=True, results=("world/table/bucket=*",)),
    Job("score", _settings("score"), on_ray=True, results=("world/scores/*",)),
    Job("sweep", _settings("sweep"), on_ray=True),
    Job("mine", _settings("mine"), on_ray=True, results=("world/mined/*",)),
    Job("reindex", _settings("reindex"), whole=_SHARDS, on_ray=True, results=("world/index/shards/*",)),
    Job("maintain", _settings("maintain"), begin=_copy("grown/table"), on_ray=True),
    Job("train", _settings("train"), whole=("world/out",), on_ray=True, results=("world/out/*",)),
)  # fmt: skip
