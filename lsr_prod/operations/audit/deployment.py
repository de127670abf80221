"""Audit of the table and the published index of a deployment."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from lsr_prod.config import Deployment
from lsr_prod.config.section import quarantine_uri
from lsr_prod.corpus.filelist import list_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.encoding.tables import Table, open_table
from lsr_prod.errors import ConfigError
from lsr_prod.operations.audit.audit import audit
from lsr_prod.operations.audit.compare import IdRange
from lsr_prod.operations.audit.findings import Audit
from lsr_prod.operations.audit.scope import Scope, open_index_scope, open_scope
from lsr_prod.operations.table_generations import follow_tables
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute
from lsr_prod.storage.location import same_location


def verify_deployment(deployment: Deployment, table: str | None, sample: int = 1) -> Audit:
    """Compare the source of a deployment, as it is now, with its table and the published version of its index."""
    followed, options = follow_tables(deployment), deployment.storage.options
    assert deployment.encode is not None
    assert followed.encode is not None
    encode = followed.encode if table is None else deployment.encode
    if table is not None and not same_location(absolute(table), absolute(encode.table)):
        encode = encode.model_copy(update={"table": table, "quarantine": None})
    snapshot = open_table(Store(absolute(encode.table), options))
    if snapshot is None:
        raise ConfigError("TABLE", f"{encode.table} is not a table", "give the folder or URI that encode.table names")
    assert deployment.source is not None
    files = list_files(resolve_source(deployment.source, options))
    scope = deployment_scope(followed.model_copy(update={"encode": encode}), files, snapshot)
    if deployment.index is not None:
        scope = replace(scope, index=open_index_scope(Store(absolute(deployment.index.output), options), snapshot))
    return audit(replace(scope, ids=IdRange(share=sample)), deployment.ray)


def deployment_scope(deployment: Deployment, files: pa.Table, table: Table) -> Scope:
    """Return the scope of a table of a deployment, without its index."""
    source, encode = deployment.source, deployment.encode
    assert source is not None
    assert encode is not None
    quarantine = Store(absolute(quarantine_uri(encode.quarantine, encode.table)), table.store.options)
    rule = "last" if encode.on_duplicate == "last" else "first"
    return open_scope(source, rule, files, table, quarantine)  # type: ignore[arg-type]


def problems(found: Audit, max_clipped_share: float | None) -> dict[str, int]:
    """Return the findings that must not be, by name."""
    names = ("missing", "removed", "outdated", "doubled", "unread", "index_missing", "index_stale", "index_doubled")
    counts = {name: getattr(found, name) or 0 for name in (*names, "exposed")}
    counts["clipped"] = int(_is_clipped(found, max_clipped_share))
    return {name: count for name, count in counts.items() if count}


def figures(found: Audit) -> Mapping[str, Any]:
    """Return the figures of an audit for the closing table and the ``RESULT`` line."""
    values = {name: value for name, value in asdict(found).items() if name != "examples"}
    return {"documents": values.pop("documents"), "missing": values.pop("missing"), "stale": found.stale, **values}


def remarks(found: Audit, max_clipped_share: float | None) -> list[str]:
    """Return what explains the figures, in sentences; see ``problems``."""
    said = []
    if found.share > 1:
        said.append(f"one of {found.share} ids was compared")
    if found.missing_in_new_files:
        said.append(
            f"{found.missing_in_new_files:,} of {found.missing:,} missing documents are in {found.new_files:,} files "
            "of which the table has no row: they came or changed after the last encode job, or were lost whole"
        )
    if found.index_table_version is not None and found.index_table_version != found.table_version:
        said.append(
            f"the index is of table version {found.index_table_version}, the table is at {found.table_version}; "
            "lsr-prod index build brings it up to date"
        )
    if found.index_compared != found.index_table_version:
        said.append(
            f"files of table version {found.index_table_version} were deleted, so the index was compared with version "
            f"{found.index_compared}"
        )
    if found.unread:
        said.append(
            f"{found.unread:,} files cannot be read to their end; up to {found.unread_bytes:,} bytes count as lost"
        )
    if _is_clipped(found, max_clipped_share):
        said.append(
            f"{found.clipped_share:.2%} of the weights have the largest impact, more than {max_clipped_share:.2%}: the "
            "impact scale is too small for these documents; encode them into a new table"
        )
    return said


def _is_clipped(found: Audit, max_clipped_share: float | None) -> bool:
    return max_clipped_share is not None and (found.clipped_share or 0.0) > max_clipped_share
