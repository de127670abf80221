"""Verify that every node of the cluster sees the local table and output folder of an index job."""

from collections.abc import Sequence
from pathlib import Path

from lsr_prod.cluster.nodes import has_several_nodes, require_files, require_shared_folders
from lsr_prod.storage import is_remote
from lsr_prod.tables import Table


def require_on_nodes(table: Table, output: str) -> None:
    """Refuse a local table or output folder that some node does not see."""
    if not has_several_nodes():
        return
    if not is_remote(table.store.uri):
        require_files("index.table", _files(table))
    require_shared_folders({"index.output": output})


def _files(table: Table) -> Sequence[tuple[str, int]]:
    folder = Path(table.store.uri).absolute()
    return [(str(folder / file.path), file.size) for file in table.files()]
