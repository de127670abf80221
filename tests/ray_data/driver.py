"""A driver that encodes and writes a corpus; tests run it in a process of its own, to kill it.

    python -m tests.ray_data.driver DEPLOYMENT_JSON GATE

Documents whose id begins with ``late`` wait until the file GATE exists.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray.data

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.ray_data import SparseEncode, TableWrite, write_sparse_table

BLOCK = 20


def dataset(rows: list[dict[str, Any]]) -> ray.data.Dataset:
    """Return rows in blocks of 20."""
    blocks = [pa.Table.from_pylist(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK)]
    return ray.data.from_arrow(blocks)


def write(deployment: Deployment, rows: list[dict[str, Any]], gate: Path | None = None) -> TableWrite:
    """Encode rows and write them."""
    data = dataset(rows)
    if gate is not None:
        data = data.map_batches(_wait, fn_kwargs={"gate": gate}, batch_size=BLOCK, batch_format="pyarrow")
    options = SparseEncode.options(deployment) | {"batch_size": BLOCK}
    return write_sparse_table(data.map_batches(SparseEncode, **options), deployment)


def _wait(batch: pa.Table, gate: Path) -> pa.Table:
    while batch["_id"][0].as_py().startswith("late") and not gate.exists():
        time.sleep(0.02)
    return batch


def main() -> None:
    """Write the corpus of a deployment."""
    deployment = Deployment.model_validate(json.loads(sys.argv[1]))
    assert deployment.source is not None
    rows = [json.loads(line) for line in Path(deployment.source.paths[0]).read_text().splitlines()]
    with ray_session(deployment.ray):
        write(deployment, rows, Path(sys.argv[2]))


if __name__ == "__main__":
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    main()
