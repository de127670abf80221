"""Folders and object stores behind one interface, and the immutable artifacts, caches and publications in them.

``stores`` is the interface; ``drafts`` writes files and folders that appear whole or not at all; ``transfer`` sends and
fetches files by sha256; ``node_cache`` keeps artifacts of object stores on a node. On these, ``artifacts`` stores
models and training sets, and ``publications`` and ``index_versions`` store indexes.
``digest_cache`` remembers the digests of local files.
"""

from lsr_prod.storage.disk import Entry
from lsr_prod.storage.location import is_remote
from lsr_prod.storage.remote import ObjectChangedError, in_threads
from lsr_prod.storage.stores import Store, as_store, require_exists, store_digest

__all__ = [
    "Entry",
    "ObjectChangedError",
    "Store",
    "as_store",
    "in_threads",
    "is_remote",
    "require_exists",
    "store_digest",
]
