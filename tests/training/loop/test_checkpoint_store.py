"""Checkpoints go where everything else of a training goes, or the training is refused before any work."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs
import pytest
from ray.train import Checkpoint

from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.storage import Store
from lsr_prod.training.loop.checkpoint_store import check_work, file_system, open_checkpoint


@pytest.mark.parametrize(
    "options",
    [
        {"aws_endpoint": "{endpoint}", "aws_region": "us-east-1"},
        {"endpoint": "{endpoint}", "region": "us-east-1"},
        {"AWS_ENDPOINT_URL": "{endpoint}", "AWS_DEFAULT_REGION": "us-east-1"},
    ],
)
def test_file_system_accepts_all_spellings_of_option(
    tmp_path, s3_options: dict[str, str], options: dict[str, str]
) -> None:
    named = {name: value.format(endpoint=s3_options["aws_endpoint"]) for name, value in options.items()}
    work = Store(f"s3://lsr/{tmp_path.name}", {**named, "allow_http": "true"})
    check_work(work)
    work.put_new("a", b"of obstore")
    files = file_system(work)
    assert isinstance(files, pyarrow.fs.S3FileSystem)
    assert files.open_input_stream(f"lsr/{tmp_path.name}/a").readall() == b"of obstore"


def test_local_folder_needs_no_file_system(tmp_path) -> None:
    check_work(Store(str(tmp_path)))
    assert file_system(Store(str(tmp_path))) is None


@pytest.mark.parametrize("uri", ["az://container/work", "abfss://c@account.host/work"])
def test_check_work_rejects_unsupported_schemes(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"train\.work: Ray Train cannot write checkpoints to"):
        check_work(Store(uri))


def test_check_work_rejects_unsupported_option() -> None:
    for uri in ("s3://bucket/work", "gs://bucket/work"):
        with pytest.raises(ConfigError, match=r"options\.timeout: Ray Train cannot write checkpoints"):
            check_work(Store(uri, {"timeout": "30s"}))


class _Flaky(Checkpoint):
    """Checkpoint whose first fetches fail as pyarrow's do if a busy store interrupts an answer."""

    failures = 2

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        if self.failures:
            self.failures -= 1
            raise OSError("Failed to flush response stream")
        with super().as_directory() as folder:
            yield folder


def test_checkpoint_is_fetched_again_after_failed_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.training.loop.checkpoint_store.time.sleep", lambda _seconds: None)
    (tmp_path / "state").write_text("x")
    checkpoint = _Flaky(str(tmp_path))
    with open_checkpoint(checkpoint) as folder:
        assert (folder / "state").read_text() == "x"
    checkpoint.failures = 1_000
    with pytest.raises(StorageError, match="could not be fetched in 6 attempts"), open_checkpoint(checkpoint):
        pass
