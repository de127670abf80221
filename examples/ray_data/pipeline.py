"""A Ray Data pipeline: read documents, split them into passages, encode, write the table, build the index.

    python examples/ray_data/pipeline.py --corpus docs.jsonl --bundle BUNDLE --output FOLDER [--words 100] [--actors 2]

The corpus has a JSON object per line with ``id``, ``title`` and ``text``; any other reader of Ray Data does as well. A
passage is a window of words, and its id is that of its document, a number sign and a count. Start an interrupted run
again with the same arguments: passages that it has encoded are not encoded again.
"""

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray.data

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.indexing import build_index
from lsr_prod.ray_data import SparseEncode, write_sparse_table

log = logging.getLogger("pipeline")


def passages(row: dict[str, Any], words: int) -> Iterator[dict[str, Any]]:
    """Yield the passages of a document."""
    text = row["text"].split()
    for number, start in enumerate(range(0, max(len(text), 1), words)):
        passage = " ".join(text[start : start + words])
        yield {"_id": f"{row['id']}#{number}", "title": row["title"], "text": passage}


def settings(corpus: Path, bundle: Path, output: Path, actors: int) -> Deployment:
    """Return the sections of a deployment that the pipeline uses; a YAML file works as well (``load_deployment``)."""
    table = str(output / "table")
    return Deployment.model_validate(
        {
            "source": {"paths": [str(corpus)], "text_fields": ["title", "text"], "stored_fields": ["title", "text"]},
            "encode": {"bundle": str(bundle), "table": table, "actors": actors},
            "index": {"table": table, "bundle": str(bundle), "output": str(output / "index")},
            "ray": {"num_cpus": actors + 2},  # without a cluster: cores for the readers beside the actors
        }
    )


def main() -> None:
    """Run the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--actors", type=int, default=2)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    deployment = settings(given.corpus, given.bundle, given.output, given.actors)
    with ray_session(deployment.ray):
        documents = ray.data.read_json(str(given.corpus), lines=True)
        split = documents.flat_map(passages, fn_kwargs={"words": given.words})
        vectors = split.map_batches(SparseEncode, **SparseEncode.options(deployment))
        table = write_sparse_table(vectors, deployment)
        index = build_index(deployment)
    log.info("%s, %s", table, index)


if __name__ == "__main__":
    main()
