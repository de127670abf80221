"""Verify that every node of a cluster has the local files of a source, before anything is written."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from lsr_prod.cluster.nodes import has_several_nodes, on_every_node, spread, summarize_nodes
from lsr_prod.corpus.pinned_file import check_pinned
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.storage import is_remote

_FOLDERS = 64  # at most one file of each is looked up, besides files all over the source
_FILES = 16


def require_source_on_nodes(files: Iterable[SourceFile], *, field: str = "source.paths") -> None:
    """Refuse local files that some node lacks, or whose content differs there: a sample is looked up on every node.

    A shared file system passes, and so does a copy of the source under the same path on every node.
    """
    if not has_several_nodes():
        return
    local = [file for file in files if not is_remote(file.uri)]
    by_folder = {file.uri: file for file in reversed(local)}
    sample = list(
        {file.location: file for file in spread([*by_folder.values()], _FOLDERS) + spread(local, _FILES)}.values()
    )
    if not sample:
        return
    found = on_every_node(_problems, sample)
    for file in sample:
        for problem in ("is not on", "has another content on"):
            if nodes := [name for name, problems in found if problems.get(file.location) == problem]:
                raise ConfigError(
                    field,
                    f"{file.location} {problem} {summarize_nodes(nodes, len(found))}",
                    "put the files into an object store, or into a folder that every node sees",
                )


def _problems(files: Sequence[SourceFile]) -> dict[str, str]:
    """Return what is wrong with files on this node, by location."""
    found = {}
    for file in files:
        try:
            check_pinned(file, {})
        except SourceError:
            found[file.location] = "has another content on" if Path(file.location).exists() else "is not on"
    return found
