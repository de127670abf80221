"""Fixtures that every suite shares: the real parts, started once."""

import gc
import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from _pytest import logging as pytest_logging
from filelock import FileLock

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # every listener on loopback; read when Ray is imported
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
# Ray ends what is idle beyond one process a core; the next job of a suite of small ones starts and imports it again.
os.environ.update({"RAY_num_workers_soft_limit": "8", "RAY_idle_worker_killing_time_threshold_ms": "60000"})
# Ray's own value is 15: beside other processes of tests its workers would get a thirtieth of a core.
os.environ.update({"RAY_worker_niceness": "0"})
# Ray's log monitor looks for new files of its workers this often; its own value is .5.
os.environ.update({"LOG_NAME_UPDATE_INTERVAL_S": "5"})
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Credentials of the S3 endpoint that tests start on loopback; Ray's workers inherit them.
os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"

from lsr_prod.cluster.session import own_folder
from quickstart.models import model_folder
from tests.objectstore.endpoint import local_s3
from tests.rights import as_ordinary_user, why_not_root

os.environ.setdefault("RAY_TMPDIR", str(own_folder()))  # also for the programs of Ray that tests start

# Processes of tests are forked from one server, which imports once what each of them would: it takes one list only.
multiprocessing.set_forkserver_preload(
    [
        "lsr_prod.encoding.commit.committer",
        "lsr_prod.encoding.tables.sparse_table",
        "lsr_prod.training.retrieval.trainer",
        "tests.training.stand_in",
    ]
)

# A busy machine is no failure: no test is timed.
hypothesis.settings.register_profile("all", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=30)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer random examples where slow tests are left out; tests that need a number name it."""
    hypothesis.settings.load_profile("quick" if "not slow" in config.option.markexpr else "all")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Share the files of tests among processes, but those that start a Ray or a server of forks are for two."""
    from xdist.scheduler import LoadFileScheduling

    class FewServers(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if file.startswith("tests/integrations/harnesses/"):
                return "harnesses"  # they share imports of seconds and an index
            return _server(file) or file

    return FewServers(config, log)


@cache
def _server(file: str) -> str:
    """Return which server the fixtures of a file start in its process, or an empty string."""
    path = Path(__file__).parents[1] / file
    text = path.read_text() if path.is_file() else ""
    if "ray_local" in text:
        return "ray"
    return "forks" if re.search("forkserver|start_chain|run_workers", text) else ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude what is imported and collected from garbage collections, which would visit it for seconds each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what is for few processes, the longest part. A slow test may take hours; others have a limit."""
    items.sort(key=lambda item: not _server(item.nodeid.partition("::")[0]))
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(4 * 3600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test has the rights of an ordinary user, and so have the fixtures that it starts."""
    if item.get_closest_marker("root"):
        return (yield)
    with as_ordinary_user():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that needs root says so with a marker, and skips for others."""
    if item.get_closest_marker("root") and (reason := why_not_root()):
        pytest.skip(reason)


@pytest.fixture
def caplog(request: pytest.FixtureRequest) -> Iterator[pytest.LogCaptureFixture]:
    """As pytest's own, which goes through all loggers of the process six times in every test, with or without it."""
    handler = request.node.stash[pytest_logging.caplog_handler_key] = pytest_logging.LogCaptureHandler()
    captured = pytest.LogCaptureFixture(request.node, _ispytest=True)
    with pytest_logging.catching_logs(handler):
        yield captured
    captured._finalize()


@pytest.fixture(autouse=True)
def _log_ends_with_its_test() -> Iterator[None]:
    """A job logs to the stderr of its own test, which is closed after it."""
    yield
    logger = logging.getLogger("lsr_prod")
    logger.handlers.clear()
    logger.propagate = True
    if logger.level != logging.NOTSET:  # every change empties the caches of all loggers
        logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _weights_do_not_depend_on_former_tests() -> None:
    """A weight that no test seeds is the same in every run, on every worker."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _package_is_left_as_it_was() -> Iterator[None]:
    """No test leaves a replaced constant or function behind: later tests would be slow, or test something else."""
    modules = [module for name, module in sys.modules.items() if name.startswith("lsr_prod")]
    before = [(module, dict(vars(module))) for module in modules]
    yield
    replaced = [
        f"{module.__name__}.{name}"
        for module, values in before
        for name, value in values.items()
        if vars(module).get(name) is not value and not isinstance(value, ModuleType)
    ]
    assert not replaced


@pytest.fixture(scope="session")
def splade_tiny() -> Path:
    """The Hugging Face folder of a working SPLADE checkpoint (BERT, 2 layers x 128, V = 30,522)."""
    return model_folder("splade-tiny")


@pytest.fixture(scope="session")
def tiny_model(splade_tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint as a model directory: documents of 128 tokens, queries of 64."""
    from lsr_prod.model import SparseEncoder

    folder = tmp_path_factory.mktemp("tiny") / "model"
    SparseEncoder.load(splade_tiny, document_max_length=128, query_max_length=64).save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_bundle(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its fp32 bundle, which the processes of a run share: the first that needs it exports it."""
    from lsr_prod.config import ExportSettings
    from lsr_prod.model.export import export_bundle

    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "tiny-bundle"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            export_bundle(ExportSettings(model=str(tiny_model), output=str(folder)))
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real collections; a skip where it is absent, a failure where it must be there (CI)."""
    folder = Path(os.environ.get("LSR_PROD_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        reason = f"{folder} is absent; set LSR_PROD_DATA to a folder with scifact/ and msmarco_5k/"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """Options of an S3 endpoint over HTTP that has the bucket ``lsr``: moto, or the server of ``make store-test``."""
    with local_s3() as options:
        yield options


@pytest.fixture(scope="session")
def ray_local() -> Iterator[None]:
    """A local Ray on loopback, shared by the session."""
    from lsr_prod.cluster import ray_session
    from lsr_prod.config import RaySettings

    with ray_session(RaySettings(num_cpus=2)):
        yield
