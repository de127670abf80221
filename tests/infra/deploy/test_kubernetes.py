"""The commands for Kubernetes in docs/deploy.md, by a real kubectl; the whole night is in ``make deploy-test``."""

from pathlib import Path

import pytest
import yaml

from lsr_prod.config import Deployment
from tests.infra.deploy.kubernetes import follow_page, kubernetes_missing

pytestmark = pytest.mark.skipif(bool(kubernetes_missing()), reason=kubernetes_missing())


@pytest.mark.long
def test_kubectl_commands_of_the_page_run_the_first_night(tmp_path: Path) -> None:
    runs = []

    def entry_point(command: list[str], environment: dict[str, str]) -> int:
        program, job, option, config = command
        deployment = Deployment.model_validate(yaml.safe_load(Path(config).read_text()))
        runs.append((program, job, option, deployment.encode and deployment.encode.table, environment["STORE"]))
        return 0

    done = follow_page(tmp_path, entry_point, {"STORE": "from-the-secret"}, quick=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert runs == [("lsr-prod", "reindex", "--config", "s3://search/indexes/table", "from-the-secret")]
    assert "first-night: Complete, job SUCCEEDED" in done.stdout
