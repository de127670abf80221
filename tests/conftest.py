"""Fixtures that every suite shares: the real parts, started once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # every listener on loopback; read when Ray is imported
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tests.fetch_models import model_folder


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
def tiny_bundle(tiny_model: Path) -> Path:
    """Its fp32 bundle."""
    from lsr_prod.config import ExportSettings
    from lsr_prod.export import export_bundle

    folder = tiny_model.parent / "bundle"
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
def ray_local() -> Iterator[None]:
    """A local Ray on loopback, shared by the session."""
    from lsr_prod.cluster import ray_session
    from lsr_prod.config import RaySettings

    with ray_session(RaySettings(num_cpus=2)):
        yield
