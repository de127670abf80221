import struct
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu.encoding import Busy, providers
from benchmarks.gpu.material import more_texts
from benchmarks.gpu.parcels import keep_architecture, split, unpack


def bundle(*entries: tuple[int, int, bytes]) -> bytes:
    """Kernels (kind, architecture, code) as the CUDA compiler puts them into a library."""
    held = b""
    for kind, architecture, code in entries:
        header = struct.pack("<HHIQ", kind, 0, 64, len(code)).ljust(28, b"\0") + struct.pack("<I", architecture)
        held += header.ljust(64, b"\0") + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(held)) + held


def test_kernels_of_other_architectures_become_zeros() -> None:
    first = bundle((2, 80, b"a" * 8), (2, 90, b"b" * 8), (1, 90, b"c" * 8))
    library = b"head" + first + struct.pack("<I", 0xBA55ED50) + b"no bundle" + bundle((2, 90, b"d" * 8)) + b"tail"
    kept = keep_architecture(library, 90)
    assert len(kept) == len(library)
    assert kept == library.replace(b"a" * 8, bytes(8)).replace(b"c" * 8, bytes(8))


def test_parts_make_the_file_again(tmp_path: Path) -> None:
    packed = tmp_path / "kit.tar.xz"
    packed.write_bytes(bytes(range(250)))
    parts = split(packed, tmp_path / "parts", 100)
    assert [part.name for part in parts] == ["kit.tar.xz.00", "kit.tar.xz.01", "kit.tar.xz.02"]
    assert b"".join(part.read_bytes() for part in parts) == packed.read_bytes()


def test_programs_of_a_wheel_keep_their_rights(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.whl", "w") as archive:
        for name, mode in (("ray/raylet", 0o755), ("ray/__init__.py", 0o644), ("ray/jars/a.jar", 0o644)):
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            archive.writestr(member, b"x")
    unpack(tmp_path / "one.whl", tmp_path / "tree")
    assert (tmp_path / "tree/ray/raylet").stat().st_mode & 0o111
    assert not (tmp_path / "tree/ray/__init__.py").stat().st_mode & 0o111
    assert not (tmp_path / "tree/ray/jars").exists()


def test_more_texts_are_different_and_as_long() -> None:
    texts = more_texts(["one two", "a fox", ""], 8)
    assert texts == ["one two", "a fox", "", "two one w1", "fox a w1", "w1", "one two w2", "a fox w2"]


def test_idle_time_around_the_work_does_not_count() -> None:
    busy = Busy()
    assert busy.share != busy.share  # NaN: there is no GPU
    busy.readings = [0, 0, 90, 0, 60, 0]
    assert busy.share == pytest.approx(0.5)


def test_cpu_is_taken_where_path_names_a_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    monkeypatch.setenv("PATH", f"{closed / 'bin'}:{tmp_path}")
    assert providers() == ["cpu"]
