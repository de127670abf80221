import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.saved_dataset import SAVED_DATASET, dataset_files, is_saved_dataset
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store


def save(folder: Path, *files: str, **state: object) -> Path:
    """Write the description files of ``save_to_disk``."""
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(name.encode())
    names = [{"filename": name} for name in files]
    (folder / "state.json").write_text(json.dumps({"_data_files": names, "_indices_data_files": None} | state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_files_are_listed_in_row_order(tmp_path: Path):
    store = Store(str(save(tmp_path / "d", "data-00010.arrow", "data-00002.arrow")))
    (tmp_path / "d" / "cache-1.arrow").write_bytes(b"left by a map()")
    assert is_saved_dataset(store)
    assert [entry.name for entry in dataset_files(store)] == ["data-00010.arrow", "data-00002.arrow"]


def test_splits_are_listed_in_the_order_of_the_dictionary(tmp_path: Path):
    save(tmp_path / "train", "a.arrow")
    save(tmp_path / "test", "b.arrow")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert is_saved_dataset(Store(str(tmp_path)))
    assert [entry.name for entry in dataset_files(Store(str(tmp_path)))] == ["train/a.arrow", "test/b.arrow"]


def test_dataset_is_recognized_in_an_object_store(tmp_path: Path, s3_options: dict[str, str]):
    folder, store = save(tmp_path / "d", "a.arrow"), Store(f"s3://lsr/{tmp_path.name}", s3_options)
    assert not is_saved_dataset(store)
    for path in folder.iterdir():
        store.put_new(path.name, path.read_bytes())
    assert is_saved_dataset(store)
    assert [(entry.name, bool(entry.etag)) for entry in dataset_files(store)] == [("a.arrow", True)]


@pytest.mark.parametrize(
    ("broken", "content", "problem"),
    [
        ("state.json", '{"_data_files": [{"filename": "b.arrow"}]}', r"d/b\.arrow of the saved dataset is missing"),
        ("state.json", '{"_data_files": [], "_indices_data_files": [{"filename": "i"}]}', "flatten_indices"),
        ("state.json", '{"_data_files": ["b.arrow"]}', "it names no files"),
        ("state.json", "[]", "it is not an object"),
        ("state.json", "{", "missing or not JSON"),
        ("dataset_dict.json", "{}", "it names no splits"),
        ("dataset_dict.json", '{"splits": ["train"]}', r"train/state\.json: it is missing"),
    ],
)
def test_wrong_description_is_rejected(tmp_path: Path, broken: str, content: str, problem: str):
    folder = save(tmp_path / "d", "a.arrow")
    (folder / broken).write_text(content)
    with pytest.raises(ConfigError, match=problem) as refused:
        list(dataset_files(Store(str(folder))))
    assert refused.value.field == "source.paths"


def test_schema_is_that_of_the_first_file(tmp_path: Path):
    folder = str(save(tmp_path / "d", "a.arrow"))
    columns = pa.schema([("_id", pa.int64()), ("text", pa.string())])
    read = SAVED_DATASET.schema
    assert read is not None
    with pytest.raises(ConfigError, match=r"a\.arrow: it is not a readable Arrow stream"):
        read(folder, SourceSettings(paths=[folder]), {})
    with pa.ipc.new_stream(f"{folder}/a.arrow", columns):
        pass
    assert read(folder, SourceSettings(paths=[folder]), {}) == columns
