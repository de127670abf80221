"""The core wheel with ``[cpu]`` in an empty environment searches without the dependencies of other extras.

Its dependencies have the locked versions, the lowest that the project states, or the newest of the package index.
"""

import json
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from tests.indexing.corpus import encode_corpus, make_index

ROOT = Path(__file__).parents[2]
TEXTS = {
    "lock": "A lock is released by the thread that holds it.",
    "json": "Parse a JSON string into a Python object.",
    "sqrt": "Return the square root of a number.",
}
SEARCH = """
import importlib.util, json, sys
from importlib.metadata import requires
from lsr_prod import Searcher
from lsr_prod.extras import _EXTRAS
optional = set().union(*_EXTRAS.values())
searcher = Searcher.open(sys.argv[1], verify=True)
answer = {"installed": [name for name in sorted(optional) if importlib.util.find_spec(name)]}
answer["requires"] = [name for name in requires("lsr_prod") if ";" not in name]
answer.update({"vector": [hit.doc_id for hit in searcher.search_vector({"square": 1.0, "root": 1.0}).hits]})
try:
    answer["text"] = [hit.doc_id for hit in searcher.search("how do threads share a lock").hits]
except ImportError as error:
    answer["error"] = repr(error)
except Exception as error:
    answer["error"] = f"{type(error).__name__}: {error}"
answer["loaded"] = [name for name in sorted(optional) if name in sys.modules]
print(json.dumps(answer))
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def index(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel") / "index"
    make_index(folder, encode_corpus(tiny_bundle, TEXTS), bundle=tiny_bundle)
    return folder


def lowest() -> list[str]:
    """Requirements of the core and ``[cpu]`` at the lowest versions that the project states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["cpu"]]
    assert all(requirement.count(">=") == 1 for requirement in stated)
    return [requirement.replace(">=", "==") for requirement in stated]


VERSIONS = ["locked", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lowest", "newest"))]


@pytest.fixture(scope="module", params=VERSIONS)
def python(request, tmp_path_factory):
    """Interpreter of an environment with the core, ``[cpu]`` and the wheel."""
    if request.param == "lowest" and sys.version_info >= (3, 13):
        pytest.skip("the lowest versions have no wheels for this Python; pip installs newer ones")
    folder = tmp_path_factory.mktemp("core")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("lsr_prod-*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    install = (python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check")
    if request.param == "locked":
        run(*install, "--no-deps", "--require-hashes", "-r", ROOT / "requirements" / "core.txt", cwd=folder)
        run(*install, "--no-deps", wheel, cwd=folder)
    else:
        run(*install, f"{wheel}[cpu]", *(lowest() if request.param == "lowest" else ()), cwd=folder)
    return python


@pytest.mark.long
def test_core_wheel_searches_text_and_only_vectors_without_onnxruntime(index, python, tmp_path):
    answer = json.loads(run(python, "-c", SEARCH, index, cwd=tmp_path))
    of_tokenizers = {"anyio", "huggingface_hub", "yaml"}  # installed with it, and not imported
    assert {*answer["installed"]} - of_tokenizers == {"onnxruntime"}
    assert answer["loaded"] == ["onnxruntime"]
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(answer["requires"]) == sorted(core)
    named = {re.match(r"[\w-]+", name)[0] for name in core}
    assert named == {"click", "numpy", "pyarrow", "tantivy", "tokenizers", "tzdata"}
    assert answer["text"][0] == "lock"
    assert answer["vector"] == ["sqrt"]
    prompt = [str(python.parent / "lsr-prod"), "search", str(index)]
    shown = subprocess.run(prompt, input="lock", cwd=tmp_path, text=True, capture_output=True, check=True, timeout=60)
    assert "1. " in shown.stdout

    run(python, "-m", "pip", "uninstall", "-q", "-y", "onnxruntime", cwd=tmp_path)
    answer = json.loads(run(python, "-c", SEARCH, index, cwd=tmp_path))
    assert answer["vector"] == ["sqrt"]
    assert answer["error"].startswith("MissingExtraError: onnxruntime is not installed; install it with: pip install")


@pytest.mark.long
def test_times_are_read_where_the_system_has_no_time_zone_database(python, tmp_path):
    time = "pa.scalar(0, pa.timestamp('s', 'UTC')).as_py()"
    program = f"import zoneinfo, pyarrow as pa; zoneinfo.reset_tzpath([]); print({time})"
    assert run(python, "-c", program, cwd=tmp_path).strip() == "1970-01-01 00:00:00+00:00"


@pytest.mark.long
def test_first_program_of_the_readme_runs_in_an_environment_with_the_wheel_alone(python, tmp_path):
    program = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    assert "Parse a date from a string" in run(python, "-c", program, cwd=tmp_path).splitlines()[0]
