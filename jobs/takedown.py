"""Take documents out of a published index, at once and for good; or let them come back.

    python jobs/takedown.py --config deployment.yaml --id doc1 --id doc2 [--note "request 17"]
    python jobs/takedown.py --config deployment.yaml --file ids.txt [--restore]

Reads the section ``index`` (and ``storage``); ``ids.txt`` has one id a line. Nothing is built: a new version with
tombstones is published, which readers that refresh see within seconds, and every later build leaves the documents out,
also those that are encoded again. ``--restore`` ends that: what the index's version of the table holds is found again
at once, what it does not hold comes with the reindex that finds it. Ends with a table and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod.indexing import delete_documents, restore_documents
from lsr_prod.indexing.mirror import adopt_head, mirror_head
from lsr_prod.jobs.run import run_job
from lsr_prod.storage import Store


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="jobs/takedown.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--id", action="append", default=[])
    parser.add_argument("--file", type=Path)
    parser.add_argument("--note", default="")
    parser.add_argument("--restore", action="store_true")
    given, settings = parser.parse_known_args(sys.argv[1:] if argv is None else argv)

    def work(deployment: Deployment) -> Mapping[str, Any]:
        began = time.perf_counter()
        ids = [*given.id, *(_read_ids(given.file) if given.file else [])]
        if not ids:
            raise ConfigError("--id", "no document is named", "give --id, or --file with one id a line")
        section = deployment.index
        assert section is not None
        index = Path(section.output).absolute()
        target = Store(section.publish_to, deployment.storage.options) if section.publish_to else None
        if target is not None:
            adopt_head(index, target)
        if given.restore:
            done = restore_documents(index, ids, given.note, options=deployment.storage.options)
        else:
            done = delete_documents(index, ids, given.note)
        if target is not None:
            mirror_head(index, target)
        return {
            "ids": len(set(ids)),
            "documents_restored" if given.restore else "documents_hidden": done.changed,
            "documents": done.documents,
            "takedowns": done.takedowns,
            "version": done.publication.version,
            "publication": done.publication.number,
            "seconds": round(time.perf_counter() - began, 3),
        }

    return run_job(work, job="jobs/takedown.py", description=__doc__, needs=("index",), argv=settings)


def _read_ids(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "--file", f"{path} cannot be read ({error})", "give a text file with one id a line"
        ) from error
    return [line for line in lines if line]


if __name__ == "__main__":
    raise SystemExit(main())
