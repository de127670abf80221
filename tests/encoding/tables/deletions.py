"""Delete rows of a table by id."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from lsr_prod.encoding.tables import Part, open_table, read_all_rows
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import deleted_rows, save_vectors

__all__ = ["delete_ids"]


def delete_ids(
    store: Store,
    ids: Collection[str],
    adds: Sequence[tuple[Part, Mapping[str, str | None]]] = (),
    *,
    app: str = "night",
) -> None:
    """Commit deletion vectors with these documents, and add parts in the same commit."""
    table = open_table(store)
    assert table is not None
    rows = {}
    for file in table.files():
        names = read_all_rows(store, file.path)["doc_id"].to_pylist()
        before = set(deleted_rows(store, file.deleted).tolist()) if file.deleted else set()
        after = before | {row for row, name in enumerate(names) if name in ids}
        if after != before:
            rows[file.path] = np.array(sorted(after), np.uint32)
    version = table.transaction_version(app)
    table.commit(
        adds,
        [],
        app=app,
        version=0 if version is None else version + 1,
        epoch=1,
        deletions=save_vectors(store, rows),
    )
