"""The digest of the rows of a part that are not deleted, read from as few rows as possible."""

from lsr_prod.storage import Store
from lsr_prod.tables.file_table import TableFile
from lsr_prod.tables.live_rows import deleted_batches, live_batches
from lsr_prod.tables.row_digest import DIGESTED, MODULUS, digest_batches, digest_in_name

_BATCH = 4096


def part_digest(store: Store, file: TableFile, *, verify: bool = False) -> int:
    """Return the digest of the rows of a part that are not deleted, below 2**256.

    Of a part with a digest in its name only the deleted rows are hashed, and subtracted; one batch of rows is in memory
    at a time.
    """
    named = None if verify else digest_in_name(file.path)
    if named is None:
        return digest_batches(live_batches(store, file, DIGESTED, _BATCH))
    return (named - digest_batches(deleted_batches(store, file, DIGESTED, _BATCH))) % MODULUS
