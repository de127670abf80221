"""The command ``lsr-prod``.

lsr-prod warm INDEX      compile what queries of this index need, and say what a cold start costs
lsr-prod search INDEX    a prompt on an index, as ``lsr-search``
lsr-prod lineage MODEL   what a model directory was made from; --work FOLDER, the chain's, tells of its parents too
lsr-prod inspect-vocabulary MODEL
                         norms of its head, overlap with a --target, tokens per word of --texts, neighbours of --words,
                         and the casing of input against output as --casing FILE.json and --picture FILE.png
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lsr_prod.errors import ConfigError, LsrError, MissingExtraError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="lsr-prod", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("warm", "compile the kernels"), ("search", "a prompt")):
        commands.add_parser(name, help=what, add_help=name != "search").add_argument("index", help="folder of an index")
    lineage = commands.add_parser("lineage", help="what a model was made from")
    lineage.add_argument("model", help="model directory")
    lineage.add_argument("--work", help="folder or URI that its chain worked in")
    inspection = commands.add_parser("inspect-vocabulary", help="what a model's output terms are")
    inspection.add_argument("model", help="model directory, folder of a language model, or a Hugging Face id")
    inspection.add_argument("--target", help="another vocabulary: a tokenizer's folder or file, or a model directory")
    inspection.add_argument("--target-embeddings", help="folder of a model with the target's tokens; default: target")
    inspection.add_argument("--words", nargs="+", default=[], help="words of the target whose neighbours are shown")
    inspection.add_argument("--texts", type=Path, help="JSONL with a field text")
    inspection.add_argument("--count", type=int, default=1000, help="texts that are read at most")
    inspection.add_argument("--casing", type=Path, help="file for the confusion matrix of casing on the texts, JSON")
    inspection.add_argument("--picture", type=Path, help="file for its picture, PNG")
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command == "search":
        from lsr_prod.search.__main__ import main as prompt

        return prompt([arguments.index, *rest])
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if arguments.command == "inspect-vocabulary":
        return _inspect(arguments)
    return _warm(arguments.index) if arguments.command == "warm" else _lineage(arguments.model, arguments.work)


def _warm(index: str) -> int:
    from lsr_prod.search.warm import warm

    try:
        found = warm(index)
    except LsrError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(
        f"import numba {found.import_s:.2f} s · open {found.open_ms:.1f} ms · "
        f"first queries {found.first_s:.2f} s · the same again {found.next_ms:.2f} ms\n"
    )
    return 0


def _lineage(model: str, work: str | None) -> int:
    try:
        from lsr_prod.training.lineage import lineage
        from lsr_prod.training.report import print_lineage
    except ModuleNotFoundError as error:
        raise SystemExit(str(MissingExtraError(error.name or "torch", "train"))) from error
    from lsr_prod.storage import Store

    try:
        print_lineage(lineage(Path(model), Store(work) if work else None))
    except LsrError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    try:
        from lsr_prod.model import SparseEncoder
        from lsr_prod.vocabulary.casing_matrix import casing_matrix
        from lsr_prod.vocabulary.inspect import inspect_vocabulary, read_texts
        from lsr_prod.vocabulary.report import print_inspection
    except ModuleNotFoundError as error:
        raise SystemExit(str(MissingExtraError(error.name or "torch", "train"))) from error

    try:
        if (arguments.casing or arguments.picture) and not arguments.texts:
            raise ConfigError("--casing", "the matrix is that of texts", "give --texts too")
        texts = read_texts(arguments.texts, arguments.count) if arguments.texts else []
        found = inspect_vocabulary(
            arguments.model,
            target=arguments.target,
            target_embeddings=arguments.target_embeddings,
            words=arguments.words,
            texts=texts,
        )
        print_inspection(found, arguments.model)
        if arguments.casing or arguments.picture:
            matrix = casing_matrix(SparseEncoder.load(arguments.model), texts)
            if arguments.casing:
                matrix.save(arguments.casing)
            if arguments.picture:
                matrix.draw(arguments.picture, arguments.model)
    except LsrError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
