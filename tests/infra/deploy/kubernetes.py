"""The section of docs/deploy.md for Kubernetes: a real kubectl, a stand-in of the API, a real night."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from quickstart.models import model_folder
from tests.cluster.namespaces import ROOT
from tests.infra.deploy.api_server import ADMIN, ApiServer
from tests.infra.deploy.operator import EntryPoint, Operator
from tests.infra.deploy.page import script
from tests.infra.image.corpus import DOCUMENTS, QUERY, write_corpus
from tests.infra.manifests.schemas import KUBERAY, has_kuberay_schemas
from tests.objectstore.endpoint import s3_endpoint

__all__ = ["KUBERNETES", "follow_page", "kubernetes_missing", "run_kubernetes"]

KUBERNETES = "Kubernetes"
_DIGEST = f"sha256:{'7' * 64}"
_PATIENCE_S = {True: 300, False: 1500}
# What fits this computer in place of a cluster that grows.
_SMALLER = ("--ray.num_cpus", "2", "--encode.min_actors", "1", "--encode.max_actors", "2")


def kubernetes_missing() -> str:
    """Return why the section cannot be run on this computer, or ""."""
    for tool in ("kubectl", "openssl"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return "" if has_kuberay_schemas() else f"there is no {KUBERAY}"


def run_kubernetes(folder: Path) -> dict[str, Any]:
    """Run every command of the section; the night is a real one, on a local Ray and an object store over HTTP.

    Raises:
        AssertionError: a command failed, or its output is not what it should be.
    """
    began, night = time.monotonic(), folder / "night.log"

    def entry_point(command: list[str], environment: dict[str, str]) -> int:
        with night.open("w") as log:
            run = [*command, *_SMALLER]
            return subprocess.run(run, env=environment, stdout=log, stderr=log, check=False).returncode

    with s3_endpoint(buckets=["search"]) as options:
        credentials = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        _upload(folder, options["aws_endpoint"])
        done = follow_page(folder, entry_point, credentials, quick=False, options=options)
    found = f"{done.stdout[-6000:]}\n{night.read_text()[-3000:] if night.exists() else ''}"
    assert done.returncode == 0, f"{found}\nexit code {done.returncode}"
    lines = [line for line in night.read_text().splitlines() if line.startswith("RESULT ")]
    figures = json.loads(lines[-1].removeprefix("RESULT "))
    assert (figures["encode.rows_out"], figures["index.publication"]) == (DOCUMENTS, 1), figures
    answer = done.stdout[done.stdout.index(QUERY) :]
    assert re.search(r"^ +1\. +[0-9.]+ +lock", answer, re.MULTILINE), answer
    return {"commands": len(re.findall(r"^\+ ", done.stdout, re.MULTILINE)), "seconds": round(time.monotonic() - began)}


def follow_page(
    folder: Path,
    entry_point: EntryPoint,
    store: dict[str, str],
    *,
    quick: bool,
    options: dict[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run the commands of the section in a home folder that has what the page says that a person needs.

    Args:
        folder: of the home folder and of volumes.
        entry_point: runs the entry points of RayJobs.
        store: variables of the object store.
        quick: leave out the lines that run ``lsr-prod`` on this computer.
        options: of a store other than Amazon's, which a person adds to the deployment and to the search.
    """
    home = folder / "home"
    search, checkout = home / "search", home / "lsr-prod"
    search.mkdir(parents=True)
    checkout.mkdir()
    shutil.copytree(ROOT / "infra", checkout / "infra")
    if options:
        with (checkout / "infra/kubernetes/overlays/production-cpu/deployment.yaml").open("a") as deployment:
            deployment.write(f"storage: {json.dumps({'options': options})}\n")
    more = "".join(f" --store-option {name}={value}" for name, value in (options or {}).items())
    commands = script(KUBERNETES, quick=quick).replace("/indexes/index -k", f"/indexes/index{more} -k")
    (checkout / ".venv").symlink_to(sys.prefix)
    if not quick:
        (search / "checkpoint").symlink_to(model_folder("splade-tiny"))
    (search / "store.env").write_text("".join(f"{name}={value}\n" for name, value in store.items()))
    (search / "digest").write_text(_DIGEST)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    with _api(folder) as api:
        (home / ".kube").mkdir()
        (home / ".kube" / "config").write_text(json.dumps(_kubeconfig(api)))
        (folder / "volumes").mkdir()
        Operator(api, folder / "volumes", entry_point)
        shell = ["bash", "-c", f"exec 2>&1 < /dev/null\n{commands}"]
        done = subprocess.run(
            shell, env=environment, cwd=home, capture_output=True, text=True, timeout=_PATIENCE_S[quick], check=False
        )
        (folder / "kubernetes.log").write_text(done.stdout)
    return done


@contextmanager
def _api(folder: Path) -> Iterator[ApiServer]:
    api = ApiServer(folder)
    try:
        yield api
    finally:
        api.close()


def _kubeconfig(api: ApiServer) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "stand-in", "cluster": {"server": api.url, "certificate-authority": str(api.certificate)}}
        ],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "admin"}}],
        "current-context": "stand-in",
    }


def _upload(folder: Path, endpoint: str) -> None:
    inputs = folder / "inputs"
    inputs.mkdir()
    write_corpus(inputs)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    for name, parent in (("corpus", "documents"), ("judged", "judged")):
        for path in (inputs / name).iterdir():
            client.put_object(Bucket="search", Key=f"{parent}/{path.name}", Body=path.read_bytes())
