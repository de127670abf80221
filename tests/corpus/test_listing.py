from pathlib import Path

import pytest

from lsr_prod.corpus.folders import is_marker
from lsr_prod.corpus.listing import find_files
from lsr_prod.storage import Store

NAMES = ["a.jsonl", "b.jsonl", "x/a.jsonl", "x/y/a.jsonl", "x/lang=de/_k=v/a.jsonl", "[c].jsonl"]
MARKERS = ["_SUCCESS", "x/_temporary/a.jsonl", "x/.a.jsonl", ".git/a.jsonl"]


@pytest.fixture(params=["local", "s3"])
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """Folder and options: the same files on a disk and in an object store."""
    options = request.getfixturevalue("s3_options") if request.param == "s3" else {}
    folder = f"s3://lsr/{tmp_path.name}" if request.param == "s3" else str(tmp_path)
    for name in [*NAMES, *MARKERS]:
        Store(folder, options).put_new(name, name.encode())
    return folder, options


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", sorted(NAMES)),
        ("x", ["x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("x/", ["x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("*.jsonl", ["[c].jsonl", "a.jsonl", "b.jsonl"]),
        ("?.jsonl", ["a.jsonl", "b.jsonl"]),
        ("[!b].jsonl", ["a.jsonl"]),
        ("[c].jsonl", ["[c].jsonl"]),
        ("*/a.jsonl", ["x/a.jsonl"]),
        ("**/a.jsonl", ["a.jsonl", "x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("x/**/a.*", ["x/a.jsonl", "x/lang=de/_k=v/a.jsonl", "x/y/a.jsonl"]),
        ("_SUCCESS", ["_SUCCESS"]),
        ("absent", []),
        ("*.csv", []),
    ],
)
def test_path_selects_the_same_files_on_every_store(corpus: tuple[str, dict[str, str]], path: str, names: list[str]):
    folder, options = corpus
    found = list(find_files(f"{folder}/{path}", options))
    assert [f"{uri.rstrip('/')}/{entry.name}".removeprefix(f"{folder}/") for uri, entry in found] == names
    assert [entry.size for _, entry in found] == [len(name) for name in names]


def test_markers_are_recognized_by_name():
    assert all(is_marker(name) for name in MARKERS)
    assert not any(is_marker(name) for name in NAMES)
