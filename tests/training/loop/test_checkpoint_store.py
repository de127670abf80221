"""Checkpoints go where everything else of a training goes, or the training is refused before any work."""

import pickle
from pathlib import Path
from typing import Any

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


def test_service_that_refuses_content_without_a_length_gets_checkpoints(
    tmp_path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)
    made = pickle.dumps(file_system(Store("s3://lsr", s3_options)))
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)  # as in another process of Ray
    files = pickle.loads(made)
    for size in (1, 20_000_000):  # one part, several parts
        with files.open_output_stream(f"lsr/{tmp_path.name}/{size}") as out:
            out.write(b"x" * size)
        assert files.get_file_info(f"lsr/{tmp_path.name}/{size}").size == size


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
    """Checkpoint whose first fetches fail halfway, as pyarrow's do if a busy store interrupts an answer."""

    failures = 2

    def to_directory(self, path: Any = None) -> str:
        found = super().to_directory(path)
        if self.failures:
            self.failures -= 1
            (Path(found) / "partial").touch()
            raise OSError("Failed to flush response stream")
        return found


def checkpoint_of(folder: Path) -> _Flaky:
    """A checkpoint that pyarrow does not know to be local."""
    (folder / "kept").mkdir()
    (folder / "kept" / "state").write_text("x")
    return _Flaky("kept", pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem()))


def test_checkpoint_is_fetched_again_without_files_of_failed_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsr_prod.training.loop.checkpoint_store.time.sleep", lambda _seconds: None)
    checkpoint = checkpoint_of(tmp_path)
    with open_checkpoint(checkpoint) as folder:
        assert [file.name for file in folder.iterdir()] == ["state"]
        assert (folder / "state").read_text() == "x"
    assert not folder.exists()
    checkpoint.failures = 1_000
    with pytest.raises(StorageError, match="could not be fetched in 6 attempts"), open_checkpoint(checkpoint):
        pass


def test_local_checkpoint_is_not_copied(tmp_path: Path) -> None:
    with open_checkpoint(Checkpoint(str(tmp_path))) as folder:
        assert folder == tmp_path
