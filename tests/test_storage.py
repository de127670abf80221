import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import digest_path
from lsr_prod.storage import Store, is_remote, require_exists, store_digest


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(str(tmp_path / "store"))
    return Store(f"s3://lsr/{tmp_path.name}", request.getfixturevalue("s3_options"))


def test_an_object_is_created_once_and_never_replaced(store: Store) -> None:
    assert store.get("a/b.json") is None
    assert store.size("a/b.json") is None
    assert store.put_new("a/b.json", b"first")
    assert not store.put_new("a/b.json", b"second")
    assert store.get("a/b.json") == b"first"
    assert store.size("a/b.json") == 5
    assert store.names() == ["a/b.json"]
    assert store.child("a").names() == ["b.json"]


def test_one_of_many_writers_wins(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.put_new("epoch", str(i).encode()), range(16)))
    assert sum(won) == 1
    assert store.get("epoch") == str(won.index(True)).encode()
    assert store.names() == ["epoch"]


def test_the_digest_is_that_of_the_content(store: Store, tmp_path: Path) -> None:
    (tmp_path / "same").write_bytes(b"content")
    store.put_new("x", b"content")
    assert store_digest(store, "x") == digest_path(tmp_path / "same")
    with pytest.raises(FileNotFoundError):
        store_digest(store, "y")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x"])
def test_a_name_from_data_never_leaves_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leaves its folder"):
        Store(str(tmp_path)).put_new(name, b"")


def test_a_killed_writer_leaves_no_object(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom lsr_prod.storage import Store\n"
        "os.link = lambda *_: os.kill(os.getpid(), 9)\n"
        "Store(sys.argv[1]).put_new('x', b'half')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    store = Store(str(tmp_path))
    assert store.get("x") is None
    assert store.put_new("x", b"whole")


def test_a_setting_that_points_nowhere_is_named(tmp_path: Path) -> None:
    require_exists("index.table", str(tmp_path))
    with pytest.raises(ConfigError, match=r"index\.table: there is nothing at"):
        require_exists("index.table", str(tmp_path / "absent"))


def test_a_remote_setting_that_points_nowhere_is_named(s3_options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="there is nothing at s3://lsr/absent"):
        require_exists("index.table", "s3://lsr/absent", s3_options)


def test_options_reach_delta_only_for_a_remote_store() -> None:
    assert is_remote("s3://b/x")
    assert Store("s3://b/x/", {"aws_region": "r"}).delta_options == {"AWS_REGION": "r"}
    assert Store("s3://b/x/").location == "s3://b/x"
    assert Store("x", {"aws_region": "r"}).delta_options is None
    assert Store("x").location == str(Path("x").absolute())
