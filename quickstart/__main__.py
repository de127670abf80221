"""Run every step on real text: ``python -m quickstart --config quickstart/deployment.yaml [--pair] [--checkpoint]``.

Builds a collection from the docstrings of the installed packages. Trains the document encoder of a small SPLADE
checkpoint for inference-free queries, exports it in int8, encodes the collection once, indexes it with the postings of
its words, and publishes it. Evaluates BM25, the trained model, and the hybrid of both on held-out queries, and writes
pages. Prints duration and result of each step, then the line ``RESULT {json}``. The folder ``.quickstart`` is deleted
first.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.session import check_temp_folder
from lsr_prod.config import Deployment, load_deployment
from lsr_prod.jobs.terminal.output import protect_output
from lsr_prod.jobs.terminal.shell import exit_code, log_to_stderr, print_result
from quickstart.pages import print_pages, write_pages
from quickstart.report import print_quality, print_stages, result
from quickstart.stages import FOLDER, Stage, collect_documents, run_path, run_stage

NEEDS = ("source", "train", "export", "encode", "index", "evaluate")
VARIANTS = {
    "pair": "also fine-tune the checkpoint as an encoder of documents and queries (quickstart/pair.yaml)",
    "checkpoint": "also evaluate the checkpoint without training (quickstart/checkpoint.yaml)",
}


def main(argv: Sequence[str]) -> int:
    """Run all steps and print the tables and ``RESULT {json}``; returns the exit code."""
    protect_output()
    return exit_code("quickstart", lambda: _run(argv), output_required=False)


def _run(argv: Sequence[str]) -> None:
    log_to_stderr()
    start = time.perf_counter()
    deployments = load_deployments(argv)
    check_temp_folder(deployments[""].ray)
    shutil.rmtree(FOLDER, ignore_errors=True)
    stages = run(deployments)
    stages.append(run_stage("pages", lambda: write_pages(deployments[""], stages)))
    total = time.perf_counter() - start
    print_stages(stages, total)
    print_quality(stages)
    print_pages(stages)
    print_result(result(stages, total))


def load_deployments(argv: Sequence[str]) -> dict[str, Deployment]:
    """Return the deployments to run, in order, by prefix of their stages; that of the default deployment is empty.

    Raises:
        ConfigError: a setting or an option is wrong.
    """
    options = argparse.ArgumentParser(add_help=False)
    for name, text in VARIANTS.items():
        options.add_argument(f"--{name}", action="store_true", help=text)
    deployment = load_deployment(argv, job="quickstart", description=__doc__ or "", needs=NEEDS, options=options)
    asked = options.parse_known_args(argv)[0]
    return {"": deployment, **{name: _variant(name) for name in VARIANTS if getattr(asked, name)}}


def _variant(name: str) -> Deployment:
    file = Path(__file__).with_name(f"{name}.yaml")
    needs = [section for section in NEEDS if section != "train"]
    return load_deployment(["--config", str(file)], job="quickstart", description="", needs=needs)


def run(deployments: Mapping[str, Deployment]) -> list[Stage]:
    """Run all stages in one Ray session."""
    stages = [run_stage("collect", collect_documents)]
    with ray_session(deployments[""].ray):
        for prefix, deployment in deployments.items():
            stages += run_path(deployment, prefix)
    return stages


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
