"""Folders and object stores behind one interface, and the artefacts, caches and publications that live in them."""

from lsr_prod.storage.store import Entry, Store, is_remote, require_exists, store_digest

__all__ = ["Entry", "Store", "is_remote", "require_exists", "store_digest"]
