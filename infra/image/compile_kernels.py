"""Compile the kernels of lsr_prod for stated CPUs: ``compile_kernels.py FOLDER CPU [CPU ...]``.

A CPU is a level of x86-64, for example ``x86-64-v3``. The machine of the build may be another CPU: kernels run only on
it, once, to find the types that they are called with; code for the stated CPUs is compiled and never run.

1. A first process builds small shards of every layout, searches them, and reports the types of each kernel.
2. One process per CPU compiles each kernel for these types into the folder, in the format of numba's cache.
"""

import itertools
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lsr_prod.compiled import CPUS_FILE

Signatures = dict[tuple[str, str], list[Any]]


def main(folder: str, cpus: list[str]) -> None:
    """Compile the kernels for ``cpus`` into ``folder``."""
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "signatures"
        _run(["find", str(found)], {"NUMBA_CACHE_DIR": scratch})
        for cpu in cpus:
            _run(["compile", str(found)], {"NUMBA_CACHE_DIR": folder, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""})
        kernels = pickle.loads(found.read_bytes())  # noqa: S301 - written by the first process
    (Path(folder) / CPUS_FILE).write_text("\n".join(cpus) + "\n")
    sys.stdout.write(f"compiled {sum(map(len, kernels.values()))} kernels for each of {', '.join(cpus)}\n")


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    # Hashes that differ from run to run would change the bytes of the image.
    settings = {**os.environ, **environment, "PYTHONHASHSEED": "0"}
    subprocess.run([sys.executable, __file__, *arguments], env=settings, check=True)  # noqa: S603 - this file


def find(path: Path) -> None:
    """Write the types of all kernels to ``path``."""
    for layout in _layouts():
        with tempfile.TemporaryDirectory() as folder:
            _search(_build(Path(folder), layout))
    path.write_bytes(pickle.dumps({at: kernel.signatures for at, kernel in _kernels()}))


def compile_all(path: Path) -> None:
    """Compile all kernels for the types in ``path``; numba stores the code."""
    from importlib import import_module

    for (module, name), signatures in pickle.loads(path.read_bytes()).items():  # noqa: S301 - written by `find`
        for signature in signatures:
            getattr(import_module(module), name).compile(signature)


def _kernels() -> Iterator[tuple[tuple[str, str], Any]]:
    for module in sorted(name for name in sys.modules if name.startswith("lsr_prod.")):
        for name, value in vars(sys.modules[module]).items():
            if hasattr(value, "py_func") and value.__module__ == module and value.signatures:
                yield (module, name), value


def _layouts() -> Iterator[Any]:
    """Every combination that changes the type of an array: vocabulary, block size, compression."""
    from lsr_prod.indexing.plan import ShardLayout

    for vocabulary, block, order in itertools.product((1 << 10, 1 << 17), (1 << 8, 1 << 16), ("content", "id")):
        for compress in (False, True) if block == 1 << 8 else (False,):
            yield ShardLayout(block, order, 8, vocabulary, ("text",), ("text",), (), 2.0, compress)


def _build(folder: Path, layout: Any) -> Any:
    """Build a shard in which blocks are split, runs are long and short, and words have postings."""
    import numpy as np
    import pyarrow as pa

    from lsr_prod.indexing.plan import ShardPlan
    from lsr_prod.indexing.shard import build_shard
    from lsr_prod.storage import Store

    rng = np.random.default_rng(0)
    documents = 2 * layout.block_size + 44 if layout.block_size <= 1 << 8 else 300
    terms = [rng.choice(40, 6, replace=False).tolist() for _ in range(documents)]
    impacts = [sorted(rng.integers(1, 256, 6).tolist(), reverse=True) for _ in range(documents)]
    rows = pa.table(
        {
            "doc_id": [f"{at:06}" for at in range(documents)],
            "terms": pa.array(terms, pa.list_(pa.int32())),
            "impacts": pa.array(impacts, pa.list_(pa.int16())),
            "text": [("one lock", "two threads")[at % 2] for at in range(documents)],
        }
    )
    plan = ShardPlan("kernels", Store(str(folder / "table")), 0, (0,), documents, layout)
    return build_shard(plan, [rows], folder).manifest, folder


def _search(built: Any) -> None:
    """Search with and without deleted documents, and score documents one by one."""
    import numpy as np

    from lsr_prod.search.kernel.workspace import Workspace
    from lsr_prod.search.shard.open_shard import OpenShard
    from lsr_prod.search.shard.shard_query import ShardQuery
    from lsr_prod.search.shard.shard_reader import ShardReader

    manifest, folder = built
    ids, weights = np.arange(3, dtype=np.int32), np.ones(3, np.float32)
    alive = np.ones(manifest.documents, np.uint8)
    alive.flags.writeable = False
    for lazy, mask in itertools.product((False, True), (None, alive)):
        shard = OpenShard(folder / "shards" / manifest.sha, manifest, lazy=lazy)
        query = ShardQuery(ids, weights, np.ones(3, np.uint8), 1, 10)
        hits = ShardReader(shard, mask, dk=8).match(query, Workspace.of_thread(), 0.0)
        ordinals = np.array(hits.ordinals)
        sealed = ordinals.view()
        sealed.flags.writeable = False
        for some, vectors in itertools.product((ordinals, sealed), ((), shard.forward.gather(ordinals, 8))):
            shard.forward.score(some, ids, weights, Workspace.of_thread(), dk=8, vectors=vectors)


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "find":
        find(Path(rest[0]))
    elif command == "compile":
        compile_all(Path(rest[0]))
    else:
        main(command, rest)
