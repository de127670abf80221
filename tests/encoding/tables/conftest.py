"""Fixture: a folder on the disk, and one on an S3 endpoint over HTTP."""

import uuid
from pathlib import Path

import pytest

from lsr_prod.storage import Store


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(str(tmp_path / "table"))
    return Store(f"s3://lsr/{uuid.uuid4().hex}", request.getfixturevalue("s3_options"))
