"""Checkpoints go where everything else of a training goes, or the training is refused before any work."""

import pickle
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from ray.train import Checkpoint

from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.storage import Store
from lsr_prod.training.loop.checkpoint import check_work, file_system, open_checkpoint


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


def checkpoint_of(folder: Path) -> Checkpoint:
    """A checkpoint that pyarrow does not know to be local."""
    (folder / "kept").mkdir()
    (folder / "kept" / "state").write_text("x")
    return Checkpoint("kept", pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem()))


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the fetches that fail halfway, as pyarrow's do if a busy store interrupts an answer."""
    failing: list[int] = []
    copy, number = pyarrow.fs.copy_files, count(1)

    def flaky(source: str, target: str, **settings: Any) -> None:
        copy(source, target, **settings)
        if next(number) in failing:
            (Path(target) / "partial").touch()
            raise OSError("Failed to flush response stream")

    monkeypatch.setattr(pyarrow.fs, "copy_files", flaky)
    monkeypatch.setattr("lsr_prod.training.loop.checkpoint.time.sleep", lambda _seconds: None)
    return failing


def test_checkpoint_is_fetched_again_without_files_of_failed_fetches(tmp_path: Path, fetches: list[int]) -> None:
    checkpoint = checkpoint_of(tmp_path)
    fetches += [1, 2]
    with open_checkpoint(checkpoint) as folder:
        assert [file.name for file in folder.iterdir()] == ["state"]
        assert (folder / "state").read_text() == "x"
    assert not folder.exists()
    fetches += range(4, 10)
    with pytest.raises(StorageError, match="could not be fetched in 6 attempts"), open_checkpoint(checkpoint):
        pass


def test_checkpoint_that_does_not_exist_is_fetched_once(tmp_path: Path, fetches: list[int]) -> None:
    checkpoint = checkpoint_of(tmp_path)
    (tmp_path / "kept" / "state").unlink()
    (tmp_path / "kept").rmdir()
    with pytest.raises(StorageError, match="could not be fetched in 1 attempts"), open_checkpoint(checkpoint):
        pass


def test_checkpoint_is_fetched_if_another_user_has_the_folder_of_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_ray_lockfiles").mkdir(mode=0o555)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with open_checkpoint(checkpoint_of(tmp_path)) as folder:
        assert (folder / "state").read_text() == "x"


def test_local_checkpoint_is_not_copied(tmp_path: Path) -> None:
    with open_checkpoint(Checkpoint(str(tmp_path))) as folder:
        assert folder == tmp_path
