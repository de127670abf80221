"""Planted faults are found with their remedy, and a sound machine has none."""

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsr_prod.storage import Store
from lsr_prod_contrib.doctor.checks import (
    check_cluster,
    check_packages,
    check_ports,
    check_python,
    check_token,
    installed_version,
)
from lsr_prod_contrib.doctor.command import doctor
from lsr_prod_contrib.doctor.machine import (
    Finding,
    check_disk,
    check_file_limit,
    check_gpus,
    check_kernels,
    check_shared_memory,
)
from lsr_prod_contrib.doctor.stores import check_checkpoints, check_store
from tests.objectstore.endpoint import s3_endpoint

BUCKETS = (
    "sound", "ignores-conditions", "racy", "refuses-parts", "denies-writes", "denies-deletes", "lists-late",
    "wrong-clock",
)  # fmt: skip


@pytest.fixture(scope="module")
def broken() -> Iterator[dict[str, str]]:
    """Options of an endpoint whose buckets behave as their names say."""
    with s3_endpoint("--broken", buckets=BUCKETS) as options:
        yield options


def faults(findings: Iterator[Finding]) -> list[str]:
    found = list(findings)
    assert all(bool(one.remedy) == (one.verdict != "ok") for one in found)
    return [one.check.rpartition(": ")[2] for one in found if one.verdict == "fault"]


@pytest.mark.parametrize(
    ("bucket", "expected"),
    [
        ("sound", []),
        ("ignores-conditions", ["create if absent", "one of several writers"]),
        ("racy", ["one of several writers"]),
        ("refuses-parts", ["parts"]),
        ("denies-writes", ["rights"]),
        ("denies-deletes", ["deletion", "clock"]),
        ("lists-late", ["listing"]),
        ("wrong-clock", ["clock"]),
        ("no-such-bucket", ["rights"]),
    ],
)
def test_faults_of_object_stores_are_found(broken: dict[str, str], bucket: str, expected: list[str]):
    assert faults(check_store("index.output", Store(f"s3://{bucket}/index", broken))) == expected


@pytest.mark.long
def test_store_that_takes_checkpoints_is_sound_and_left_as_it_was(s3_options: dict[str, str]):
    assert faults(check_store("train.work", Store("s3://lsr/doctor", s3_options))) == []
    assert check_checkpoints("train.work", Store("s3://lsr/doctor/", s3_options)).verdict == "ok"
    assert Store("s3://lsr/doctor", s3_options).names() == []


def test_store_that_refuses_checkpoints_is_found(broken: dict[str, str]):
    for uri in ("s3://refuses-parts/work", "az://container/work"):
        found = check_checkpoints("train.work", Store(uri, broken))
        assert (found.verdict, found.check) == ("fault", "train.work: checkpoints")


def test_checksums_without_a_length_are_a_fault(s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    found = check_checkpoints("train.work", Store("s3://lsr/doctor", s3_options))
    assert found.verdict == "fault"
    assert "unset AWS_REQUEST_CHECKSUM_CALCULATION" in found.remedy


def test_local_folder_is_sound_and_left_as_it_was(tmp_path: Path):
    assert faults(check_store("index.output", Store(str(tmp_path)))) == []
    assert list(tmp_path.iterdir()) == []


def test_folders_that_did_not_exist_are_removed_again(tmp_path: Path):
    assert faults(check_store("export.output", Store(str(tmp_path / "new" / "bundle")))) == []
    assert list(tmp_path.iterdir()) == []
    findings = check_store("export.output", Store(str(tmp_path / "new" / "bundle")))
    next(findings)
    (tmp_path / "new" / "theirs").touch()  # another process writes meanwhile
    assert faults(findings) == []
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["theirs"]


def test_file_in_place_of_a_folder_is_a_fault(tmp_path: Path):
    (tmp_path / "table").write_text("no folder")
    assert faults(check_store("encode.table", Store(str(tmp_path / "table")))) == ["rights"]


def test_old_and_untried_python():
    assert [check_python(version).verdict for version in ((3, 10), (3, 11), (3, 99))] == ["fault", "ok", "warning"]


def test_missing_and_wrong_packages():
    def versions(**changes: str | None):
        return lambda name: changes.get(name.replace("-", "_"), installed_version(name))

    (packages, runtime) = check_packages()
    assert (packages.verdict, runtime.verdict) == ("ok", "ok")
    (packages, _) = check_packages(versions(numpy=None))
    assert (packages.verdict, packages.found) == ("fault", "numpy is not installed")
    (packages, _) = check_packages(versions(ray="1.0"))
    assert packages.verdict == "fault"
    assert packages.found.startswith("ray 1.0 is not ")
    (_, runtime) = check_packages(versions(onnxruntime="1.31.1", onnxruntime_gpu="1.31.1"))
    assert runtime.verdict == "fault"
    (_, runtime) = check_packages(versions(onnxruntime=None, onnxruntime_gpu=None))
    assert runtime.verdict == "warning"


def test_source_tree_without_metadata_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lsr_prod_contrib.doctor.checks._NAME", "lsr_prod_not_installed")
    (packages, runtime) = check_packages()
    assert (packages.check, packages.verdict, runtime.verdict) == ("packages", "warning", "ok")
    assert "requirements/" in packages.remedy


def test_disks(tmp_path: Path):
    free = {"full": 10**8, "small": 5 * 10**9, "large": 10**12}
    verdicts = {name: check_disk("scratch", tmp_path, lambda _, left=left: (0, 0, left)) for name, left in free.items()}
    assert [verdicts[name].verdict for name in ("full", "small")] == ["fault", "warning"]
    assert verdicts["large"].found.endswith("MB/s")
    (tmp_path / "file").touch()
    assert check_disk("node cache", tmp_path / "file").verdict == "fault"


def test_limits_and_memory(tmp_path: Path):
    assert [check_file_limit(limit).verdict for limit in (1024, 4096, 65536, -1)] == ["fault", "warning", "ok", "ok"]
    assert check_shared_memory(tmp_path / "missing").verdict == "warning"


def test_kernels_must_load():
    assert check_kernels().verdict == "ok"
    assert check_kernels("lsr_prod.search.kernels.absent").verdict == "fault"


def test_gpus_need_their_runtime():
    assert check_gpus([], []).verdict == "ok"
    assert check_gpus(["/dev/nvidia0"], ["CUDAExecutionProvider"]).verdict == "ok"
    assert check_gpus(["/dev/nvidia0"], ["CPUExecutionProvider"]).verdict == "fault"


def test_tokens(tmp_path: Path):
    with tempfile.TemporaryDirectory() as name:  # the folders of pytest are private
        home = Path(name)
        home.chmod(0o755)
        token = home / ".ray" / "auth_token"
        assert check_token({}, home).verdict == "ok"
        token.parent.mkdir()
        token.write_text("x" * 32)
        token.chmod(0o644)
        assert check_token({}, home).remedy == f"chmod 600 {token}"
        home.chmod(0o700)
        assert check_token({}, home).verdict == "ok"
    (tmp_path / ".ray").mkdir()
    token = tmp_path / ".ray" / "auth_token"
    token.write_text("x" * 32)
    token.chmod(0o600)
    assert check_token({}, tmp_path).verdict == "ok"
    assert check_token({"RAY_AUTH_MODE": "disabled"}, tmp_path).verdict == "fault"
    assert check_token({"RAY_AUTH_TOKEN": "short"}, tmp_path).verdict == "fault"
    assert check_token({"RAY_AUTH_TOKEN": "x" * 32}, tmp_path).verdict == "ok"
    assert check_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, tmp_path).verdict == "fault"


def test_ports_and_addresses():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        assert check_ports([port]).verdict == "warning"
        assert check_cluster(f"127.0.0.1:{port}x").verdict == "fault"
    assert check_ports([port]).verdict == "ok"
    assert check_cluster(f"127.0.0.1:{port}").verdict == "fault"
    assert check_cluster("127.0.0.1").verdict == "fault"


def test_command_ends_with_1_on_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x" * 32)
    monkeypatch.setattr("lsr_prod_contrib.doctor.checks.examine_machine", lambda: iter(()))
    table = tmp_path / "table"
    command = ["--encode.bundle", "b", "--encode.table", str(table)]
    assert doctor.run(command) == 0
    assert '"faults": 0' in capsys.readouterr().out
    (tmp_path / "file").touch()
    command[-1] = str(tmp_path / "file")
    assert doctor.run([*command, "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["check"] for line in lines if line["verdict"] == "fault"] == ["encode.table: rights"]
    assert doctor.run([*command, "--encode.no_such_field", "1"]) == 2
