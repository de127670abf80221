"""Verify that every node of the cluster sees the local files and folders of an encode job, before it writes."""

from pathlib import Path

from lsr_prod.cluster.nodes import has_several_nodes, require_files, require_shared_folders
from lsr_prod.corpus.filelist import iterate_files
from lsr_prod.corpus.on_nodes import require_source_on_nodes
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.prepare import Work
from lsr_prod.formats.bundle import Bundle
from lsr_prod.storage import is_remote
from lsr_prod.tables import open_table


def require_on_nodes(work: Work) -> None:
    """Refuse a local source, bundle or table that some node does not see."""
    if not has_several_nodes():
        return
    plan = work.plan
    local = not all(map(is_remote, plan.files["uri"].unique().to_pylist()))
    table = open_table(work.table) if local else None
    if local and (table is None or waves_done(table, plan.digest) < plan.waves):
        require_source_on_nodes(file for _, file in iterate_files(plan.files))
    if not is_remote(work.encode.bundle):
        folder = Path(work.encode.bundle).absolute()
        require_files("encode.bundle", [(str(folder / file.path), file.size) for file in Bundle.load(folder).files])
    require_shared_folders({"encode.table": work.table.uri, "encode.quarantine": work.quarantine.uri})
