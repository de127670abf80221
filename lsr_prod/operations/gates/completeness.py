"""Audit of a version before its publication, against the source that its run has pinned."""

from dataclasses import replace

from lsr_prod.errors import ArtifactError
from lsr_prod.operations.audit.audit import audit
from lsr_prod.operations.audit.deployment import deployment_scope
from lsr_prod.operations.audit.findings import Audit
from lsr_prod.operations.audit.records import IdRange
from lsr_prod.operations.audit.scope import IndexScope
from lsr_prod.operations.gates.versions import Versions
from lsr_prod.storage import Store, as_store
from lsr_prod.storage.folders import absolute
from lsr_prod.tables import open_table

_SAMPLE = 100_000  # ids, at least
_LARGEST_SHARE = 64


def audit_candidate(versions: Versions) -> Audit:
    """Compare the source with the candidate and the table version that it was built from.

    A sample has other ids for every version, so that all ids are compared in the course of many nights.
    """
    version, encode = versions.candidate.version, versions.deployment.encode
    assert encode is not None
    assert versions.files is not None
    store = Store(absolute(encode.table), dict(versions.options))
    table = open_table(store, version.table_version)
    if table is None:
        raise ArtifactError(f"{store.uri} is not a table; encode the corpus again")
    whole = versions.limits.verify == "all"
    share = 1 if whole else min(max(version.documents // _SAMPLE, 1), _LARGEST_SHARE)
    scope = deployment_scope(versions.deployment, versions.files, table)
    return audit(
        replace(
            scope,
            index=IndexScope(as_store(versions.candidate.index), version, table),
            ids=IdRange(share, int(version.sha[:8], 16) % share),
            stored=whole,
            clipping=False,
        ),
        versions.deployment.ray,
    )
