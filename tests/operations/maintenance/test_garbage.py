from pathlib import Path

import pytest

from lsr_prod.operations.maintenance.vacuum import Garbage, delete_garbage
from lsr_prod.storage import Store


@pytest.mark.parametrize("kind", ["parts", "deletion_vectors", "drafts", "markers"])
def test_unchanged_objects_are_deleted_if_the_store_lists_times_in_milliseconds(
    tmp_path: Path, s3_options: dict[str, str], kind: str
) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    for number in range(4):
        store.put_new(f"part-{number}", b"x")
    delete_garbage(store, Garbage(0, {kind: store.entries()}))
    assert store.names() == []
