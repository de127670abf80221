"""Audit: compare the ids of a source with those of its table and its index, without the commit protocol."""

from lsr_prod.operations.audit.audit import audit
from lsr_prod.operations.audit.compare import IdRange
from lsr_prod.operations.audit.findings import Audit
from lsr_prod.operations.audit.scope import Scope, open_index_scope, open_scope

__all__ = ["Audit", "IdRange", "Scope", "audit", "open_index_scope", "open_scope"]
