"""The peer: ``write_delta`` of Ray with its row-id checkpoint, killed and restarted like the encode job.

Its losses and duplicates are counted by the same oracle: a harness that finds no error in the encode job must find the
known errors of the peer.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lsr_prod.cluster.session import own_folder
from tests.faults.attempts import ROOT
from tests.faults.corpus import Corpus
from tests.faults.oracle import Findings

__all__ = ["run_peer"]

_PATIENCE = 180


def run_peer(folder: Path, corpus: Corpus) -> dict[str, Findings]:
    """Kill the peer in the middle of its work and after its commit, restart it each time, and count the errors.

    Args:
        folder: of its tables and checkpoints.
        corpus: only its documents are used.
    """
    rows = [{"_id": row.doc_id, "text": row.text} for row in corpus.rows if row.reason is None]
    source = folder / "source"
    source.mkdir(parents=True)
    for number in range(8):
        lines = [json.dumps(row) for row in rows[number::8]]
        (source / f"{number}.jsonl").write_text("\n".join(lines))
    return {
        "killed in the middle": _kill_and_repeat(folder / "middle", source, corpus, _half_done, checkpoint=True),
        "killed after its commit": _kill_and_repeat(folder / "after", source, corpus, _committed, checkpoint=False),
    }


def _kill_and_repeat(
    folder: Path, source: Path, corpus: Corpus, moment: Callable[[Path], bool], *, checkpoint: bool
) -> Findings:
    command = [sys.executable, "-m", "tests.faults.peer", str(source), str(folder), "checkpoint" if checkpoint else ""]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        deadline = time.monotonic() + _PATIENCE
        while not moment(folder):
            if driver.poll() is not None or time.monotonic() > deadline:
                driver.kill()
                raise RuntimeError("the peer ended before it could be killed")
            time.sleep(0.02)
        driver.kill()
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    if done.returncode:
        raise RuntimeError(f"the peer failed: {done.stderr[-2000:]}")
    found = Counter(DeltaTable(folder / "table").to_pyarrow_table(columns=["_id"])["_id"].to_pylist())
    findings = Findings()
    findings.note("lost", len(corpus.documents - found.keys()), "documents")
    findings.note("doubled", sum(count - 1 for count in found.values()), "documents")
    return findings


def _half_done(folder: Path) -> bool:
    return len(list((folder / "checkpoint").rglob("*.parquet"))) >= 4


def _committed(folder: Path) -> bool:
    try:
        return DeltaTable(folder / "table").version() >= 0 and bool(DeltaTable(folder / "table").file_uris())
    except TableNotFoundError:
        return False


def _slowly(batch):
    time.sleep(0.5)
    return batch


def _write(source: str, folder: Path, checkpoint: bool) -> None:
    import ray
    from ray.data import DataContext
    from ray.data.checkpoint import CheckpointConfig

    os.environ.setdefault("RAY_TMPDIR", str(own_folder()))
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    context = DataContext.get_current()
    context.enable_progress_bars = False
    if checkpoint:
        context.checkpoint_config = CheckpointConfig(
            id_column="_id", checkpoint_path=str(folder / "checkpoint"), delete_checkpoint_on_success=False
        )
    paths = sorted(str(path) for path in Path(source).glob("*.jsonl"))
    rows = ray.data.read_json(paths, override_num_blocks=8)
    rows.map_batches(_slowly, batch_size=None).write_delta(str(folder / "table"))
    time.sleep(20 if not checkpoint else 0)  # committed, but the driver has not been notified


if __name__ == "__main__":
    _write(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "checkpoint")
