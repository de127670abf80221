"""Actors that live for several waves and die: blocks are retried a limited number of times."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.exceptions import RayError

from lsr_prod.cluster.tasks import our_error
from lsr_prod.config import EncodeSettings
from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.actors.actor import ModelSettings
from lsr_prod.encoding.actors.places import pool_size
from lsr_prod.encoding.actors.pool import BlockCall, EncoderPool
from lsr_prod.encoding.cells.lookup import ROW_COUNT, WaveTask
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.results import BlockResult
from lsr_prod.encoding.tables.sparse_table import committed_files
from lsr_prod.errors import ConfigError, EncoderBrokenError
from tests.encoding.made_tables import PROPERTIES, make_tables, newest
from tests.encoding.poison_encoder import poison_factory

pytestmark = pytest.mark.usefixtures("ray_local")


def settings(**changes: Any) -> EncodeSettings:
    return EncodeSettings.model_validate({"bundle": "b", "table": "t", **changes})


def model(factory: EncoderFactory, **changes: float) -> ModelSettings:
    times = {"batch_timeout_s": 20.0, "document_timeout_s": 4.0} | changes
    return ModelSettings(factory, **times)


def wave(folder: Path) -> WaveTask:
    table, quarantine = make_tables(folder)
    return WaveTask("p", 0, PROPERTIES.buckets, table, quarantine, PROPERTIES, committed_files(newest(table)))


def block(cell: int, texts: list[str]) -> Any:
    rows = [
        {
            "cell": cell,
            "file": 0,
            "source_key": 7,
            "source": "c.jsonl",
            "position": i,
            "doc_id": f"{cell}-{i}",
            "text": text,
        }
        for i, text in enumerate(texts)
    ]
    row_count = {"cell": cell, "file": 0, "source": "c.jsonl", "reason": ROW_COUNT, "position": len(rows)}
    return ray.put(pa.Table.from_pylist([*rows, row_count], schema=row_schema(())))


def encode(pool: EncoderPool, task: WaveTask, blocks: list[Any]) -> Iterator[BlockResult]:
    """Submit blocks and yield their results."""
    shared = ray.put(task)
    for number, rows in enumerate(blocks):
        pool.submit(BlockCall(task.wave, number, shared, (rows,), ({},)))
    while pool.unfinished:
        for _, outcome in pool.wait(5):
            if isinstance(outcome, RayError):
                raise our_error(outcome) or outcome
            yield outcome


def one_actor() -> Any:
    return pool_size(settings(actors=1))


def reasons(results: list[BlockResult]) -> dict[str, int]:
    counts = (cell.counts.quarantined_by_reason for result in results for cell in result.cells)
    return dict(sum(map(Counter, counts), Counter[str]()))


@pytest.mark.long
def test_documents_that_crash_or_hang_are_quarantined_and_others_encoded(tmp_path: Path):
    texts = [f"fox {i}" for i in range(8)]
    texts[2], texts[5] = "SEGFAULT here", "SLEEP here"
    with EncoderPool(one_actor(), model(poison_factory(), batch_timeout_s=5, document_timeout_s=5)) as pool:
        results = list(encode(pool, wave(tmp_path), [block(0, texts), block(1, ["fine fox"])]))
    assert reasons(results) == {"encoder_crashed": 1, "encoder_timeout": 1}
    assert sum(cell.encoded for result in results for cell in result.cells) == 7
    assert sum(cell.counts.rows_in for result in results for cell in result.cells) == 9


def kill_at_first_call(pid_file: Path) -> int:
    while not pid_file.exists() or not pid_file.read_text():
        time.sleep(0.01)
    pid = int(pid_file.read_text())
    time.sleep(0.5)  # its first call takes longer
    os.kill(pid, signal.SIGKILL)
    return pid


def test_blocks_of_a_killed_actor_are_encoded_again(tmp_path: Path):
    pid_file = tmp_path / "pid"
    settings = model(poison_factory(pid_file), document_timeout_s=20)
    with EncoderPool(one_actor(), settings) as pool, ThreadPoolExecutor(1) as executor:
        killed = executor.submit(kill_at_first_call, pid_file)
        results = list(encode(pool, wave(tmp_path), [block(i, [f"fox {i}", "PAUSE"]) for i in range(2)]))
        assert int(pid_file.read_text()) != killed.result()
        assert sum(cell.encoded for result in results for cell in result.cells) == 4
        # The pool continues with the restarted actor.
        again = list(encode(pool, wave(tmp_path / "next"), [block(0, ["one more fox"])]))
        assert again[0].cells[0].encoded == 1


def test_model_that_does_not_open_raises_encoder_broken_error(tmp_path: Path):
    broken = EncoderFactory("tests.encoding.poison_encoder:open_broken", {"how": "EXIT"})
    with EncoderPool(one_actor(), model(broken)) as pool, pytest.raises(EncoderBrokenError):
        list(encode(pool, wave(tmp_path), [block(0, ["fox"])]))


def test_pool_uses_new_places_within_wave_and_retires_actors_of_left_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lsr_prod.encoding.actors.pool._LOOK_S", 0.1)
    node = ray.get_runtime_context().get_node_id()
    places = [node]
    blocks = [block(i, [f"fox {i}", "PAUSE"]) for i in range(10)]
    with EncoderPool(one_actor(), model(poison_factory()), lambda: tuple(places)) as pool, caplog.at_level("INFO"):
        results = encode(pool, wave(tmp_path), blocks)
        cells = [next(results)]
        places.append(node)
        cells += [next(results) for _ in range(2)]
        places.pop()
        cells += list(results)
    assert sum(cell.encoded for result in cells for cell in result.cells) == 20
    changes = [vars(record)["fields"] for record in caplog.records if vars(record)["event"] == "encoder pool changed"]
    assert [(change["added"], change["left"]) for change in changes] == [(1, 0), (0, 1)]
    assert sum(pool.blocks.values()) == 10


@pytest.mark.long
def test_late_block_is_issued_again_and_its_first_result_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lsr_prod.encoding.actors.actor._LEAST_S", 0.0)
    monkeypatch.setattr("lsr_prod.encoding.actors.actor._ENOUGH", 1)
    monkeypatch.setattr("lsr_prod.encoding.actors.actor._TIMES", 0.0)
    task = wave(tmp_path)
    with EncoderPool(pool_size(settings(actors=2)), model(poison_factory())) as pool, caplog.at_level("WARNING"):
        results = list(encode(pool, task, [block(0, ["fox"]), *(block(i, [f"fox {i}", "PAUSE"]) for i in (1, 2, 3))]))
        again = list(encode(pool, task, [block(0, ["fox"])]))  # the second calls end unheard
    assert "late block issued again" in [vars(record)["event"] for record in caplog.records]
    assert sorted(cell.cell for result in results for cell in result.cells) == [0, 1, 2, 3]
    assert [cell.cell for cell in again[0].cells] == [0]


def test_encoders_share_gpus_as_far_as_there_are_cores(monkeypatch):
    node = {"NodeID": "n", "Labels": {}, "Resources": {"CPU": 16.0, "GPU": 2.0}}
    monkeypatch.setattr("lsr_prod.encoding.actors.places.usable_nodes", lambda: [node])
    size = pool_size(settings(provider="cuda", actors_per_gpu=3))
    assert (len(size.nodes), size.needs.gpus) == (6, 1 / 3)
    assert len(pool_size(settings(provider="auto", actors_per_gpu=1)).nodes) == 2
    assert len(pool_size(settings(provider="cuda", threads_per_actor=4)).nodes) == 4


def test_pool_size_follows_machine_and_settings():
    size = pool_size(settings())
    cores = int(ray.cluster_resources()["CPU"])
    assert (len(size.nodes), size.needs.cpus, size.needs.gpus) == (cores, 1, 0)
    assert len(pool_size(settings(threads_per_actor=cores)).nodes) == 1
    assert len(pool_size(settings(actors=1)).nodes) == 1
    with pytest.raises(ConfigError, match=r"encode\.threads_per_actor: 64 threads on 2 cores"):
        pool_size(settings(threads_per_actor=64))
    with pytest.raises(ConfigError, match=r"encode\.provider: cuda on a cluster without a GPU"):
        pool_size(settings(provider="cuda"))
