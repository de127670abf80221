"""The commands on models: ``model``, ``train``, ``mine``, ``score``, ``export``, ``push``, ``inspect lineage``.

torch and transformers take seconds to load: they are imported after the arguments and settings are validated.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod.extras import contrib
from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.shell import Command, CommandParser, Job, add_store_option, location, scalars, store_options

if TYPE_CHECKING:
    from lsr_prod.config import Deployment
    from lsr_prod.training.lineage import Ancestor

_FIGURES = ("steps", "rows", "loss", "l0_query", "l0_document", "start", "best", "seconds")


def _hide_progress() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]


def _add_model_options(parser: CommandParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", type=location, help="folder, URI or Hugging Face id of a masked language model"
    )
    parser.add_argument(
        "dest", metavar="DEST", type=location, help="folder or URI of the model; must not exist, or hold the same model"
    )
    add_store_option(parser)
    parser.add_argument(
        "--query-max-length", type=int, metavar="N", help="maximum tokens of a query, special tokens included"
    )
    parser.add_argument(
        "--document-max-length", type=int, metavar="N", help="maximum tokens of a document, special tokens included"
    )
    parser.add_argument("--query-prompt", metavar="TEXT", help="text put before every query")
    parser.add_argument("--document-prompt", metavar="TEXT", help="text put before every document")
    parser.add_argument("--casing", choices=("none", "lowercase"), help="lowercase: lowercase texts before tokenizing")
    parser.add_argument("--activation", choices=("log1p_relu", "l0"), help="l0: apply the logarithm twice")
    parser.add_argument(
        "--pooled-tokens",
        choices=("all", "not_bos", "appended"),
        help="not_bos: leave out the first token; appended: read only the tokens of --appended-tokens",
    )
    parser.add_argument(
        "--appended-tokens", type=int, metavar="N", help="EOS tokens after the text, each with a head of its own"
    )
    parser.add_argument(
        "--query-encoder",
        choices=("model", "idf", "learned"),
        help="idf: inference-free queries, weighted by IDF; learned: by a table that finetune trains",
    )


@partial(Command, "model", add_options=_add_model_options, output_required=False)
def model(given: argparse.Namespace) -> None:
    """Make a model directory from a masked language model, a SPLADE checkpoint or BGE-M3.

        lsr-prod model SOURCE DEST [--casing lowercase] [--document-max-length 256]

    The settings that decide a vector are fixed here and stay with the model in its encoder card: lengths, prompts, casing,
    activation, pooled tokens, and whether queries are encoded by the model. Prints the folder and its digest.
    Exit codes: 0 done, 1 damaged source, 2 bad usage or impossible settings (nothing was written).
    """
    options = store_options(given)
    source, dest = given.source, given.dest
    fields = {name: value for name, value in vars(given).items() if name not in ("source", "dest", "store_option")}
    _hide_progress()

    from lsr_prod.model import SparseEncoder
    from lsr_prod.model.directory import folder_to_save
    from lsr_prod.storage import is_remote
    from lsr_prod.storage.folders import open_source

    encoder = SparseEncoder.load(
        open_source(source, options), **{name: value for name, value in fields.items() if value is not None}
    )
    if is_remote(dest):
        with folder_to_save(dest, options, field="DEST") as folder:
            digest = encoder.save(folder)
    else:
        digest = encoder.save(dest)
    say(f"{dest}: {digest}")


def print_stages(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per stage of ``run_chain``; a skipped stage has the figures of the run that finished it."""
    from lsr_prod.jobs.terminal.tables import print_columns

    cells = []
    for row in rows:
        stage = [str(row["number"]), row["kind"], "before" if row["skipped"] else "now"]
        cells.append([*stage, *(row.get(name) for name in _FIGURES), row["model"]])
    print_columns("stages", ("stage", "kind", "done", *_FIGURES, "model"), cells)


def _print_chain(summary: Mapping[str, Any]) -> None:
    if "stages_finished" in summary:
        _print_dry_run(summary)
        return
    from lsr_prod.jobs.terminal.tables import print_table

    print_stages(summary["stage_rows"])
    print_table("lsr-prod train", scalars(summary))


def _print_dry_run(summary: Mapping[str, Any]) -> None:
    from lsr_prod.jobs.terminal.tables import print_columns, print_table

    names = ("kind", "done", "rows", "steps", "hours", "memory_bytes", "note")
    stages = summary["stage_rows"]
    cells = [[str(row["number"]), *(row[name] for name in names)] for row in stages]
    print_columns("stages", ("stage", *(name.replace("_", " ") for name in names)), cells)
    bad = [[str(row["number"]), reason, count] for row in stages for reason, count in row["quarantined"].items()]
    if bad:
        print_columns("rows that would be quarantined", ("stage", "reason", "rows"), bad)
    print_table("dry run", scalars(summary))


def _add_train_options(parser: CommandParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print what the run would do, and write nothing")


@partial(Job, "train", needs=("train",), add_options=_add_train_options, show=_print_chain, pages=True)
def train(deployment: "Deployment", given: argparse.Namespace) -> Mapping[str, Any]:
    """Train a model by a chain of stages, each from a model directory to a model directory.

        lsr-prod train --config deployment.yaml [--train.workers 8 --train.use_gpu true]
        lsr-prod train --config deployment.yaml --dry-run
        ray job submit --working-dir . -- python jobs/train.py --config deployment.yaml

    Reads the sections ``train``, ``ray`` and ``storage``; ``jobs/recipes`` in the repository has complete examples. All
    settings are checked before anything is written. Finished stages are skipped; a changed stage runs again, and so do the
    stages after it. An interrupted job is resumed inside its stage by the same command. ``lsr-prod inspect lineage
    MODEL`` prints what a model was made from.

    With ``--dry-run`` nothing is written and Ray is not started: all settings are checked, all rows are read and validated,
    and it prints per stage the rows, the rows that would be quarantined by reason, steps, memory, the hours from timed
    steps of fine-tuning on this machine, and which stages are finished already.

    Prints a table with one row per stage, a table of figures, and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    _hide_progress()
    if given.dry_run:
        described: Mapping[str, Any] = contrib("estimates.training").describe_chain(deployment)
        return described
    from lsr_prod.training.chain import run_chain

    return run_chain(deployment)


@partial(Job, "mine", needs=("mine",))
def mine(deployment: "Deployment") -> Mapping[str, Any]:
    """Mine hard negatives for training pairs with a published index.

        lsr-prod mine --config deployment.yaml [--mine.negatives 15 --mine.margin_ratio 0.95]

    Reads the sections ``mine``, ``ray`` and ``storage``. Every query is searched in the index. A hit becomes a negative
    unless it is a positive of that query anywhere in the data (by id, by text, or as a text that holds one, is a part of
    one or nearly repeats it), scores above the margin (by the index, or by the scores of a teacher), or repeats the text of
    another. The rows are Parquet that ``lsr-prod train`` reads as ``kind: negatives``, and
    with ``mine.scores`` as ``kind: scores``: one part per slice of the pairs, then ``_manifest.json``. Rows that are not
    pairs, or have too few negatives, are written to ``_quarantine`` in the same folder with their reason. An interrupted
    job is resumed by the same command; a finished one has nothing to do.

    Prints a table and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    from lsr_prod.training.negatives.job import mine_negatives

    return mine_negatives(deployment)


@partial(Job, "score", needs=("score",))
def score(deployment: "Deployment") -> Mapping[str, Any]:
    """Score training rows with a teacher, for distillation.

        lsr-prod score --config deployment.yaml [--score.teacher.kind dense --score.teacher.model DIR]

    Reads the sections ``score``, ``ray`` and ``storage``. The teacher is a cross-encoder, or a larger dense or sparse
    encoder. It scores every document of every row of kind pairs, triples or negatives. The rows are Parquet that
    ``lsr-prod train`` reads as ``kind: scores``: one part per slice of the input, then ``_manifest.json``. Rows that are
    invalid, or on which the teacher fails, are written to ``_quarantine`` in the same folder with their reason. An
    interrupted job is resumed by the same command; a finished one has nothing to do.

    Prints a table and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    from lsr_prod.training.scoring.job import score_training_rows

    return score_training_rows(deployment)


@partial(Job, "export", needs=("export",))
def export(deployment: "Deployment") -> Mapping[str, Any]:
    """Export a model as an ONNX bundle: the graph with pooling and top-k, the tokenizer and the encoder card.

        lsr-prod export --config deployment.yaml [--export.precision int8]

    Reads the sections ``export`` and ``storage``. The bundle is compared with the torch model before it is sealed; if the
    rankings differ, the job fails and leaves nothing behind. Lengths, prompts and casing belong to the model; set them
    with ``lsr-prod model``.

    Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    _hide_progress()
    from lsr_prod.model.export import export_bundle

    assert deployment.export is not None
    return export_bundle(deployment.export, deployment.storage.options)


def _add_lineage_options(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=location, help="folder or URI of a model directory")
    add_store_option(parser)
    parser.add_argument(
        "--work", metavar="FOLDER", type=location, help="folder or URI that the chain of the model worked in"
    )


@partial(Command, "inspect lineage", add_options=_add_lineage_options)
def lineage(given: argparse.Namespace) -> None:
    """Print what a model directory was made from, step by step.

        lsr-prod inspect lineage MODEL [--work FOLDER]

    Without ``--work`` only the last step is known; with the folder or URI that the chain worked in, every step is printed.
    Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    from lsr_prod.storage import Store
    from lsr_prod.storage.folders import open_folder
    from lsr_prod.training.lineage import lineage

    options = store_options(given)
    print_lineage(lineage(open_folder(given.model, options), Store(given.work, options) if given.work else None))


def print_lineage(ancestors: Sequence["Ancestor"]) -> None:
    """Print a model and the models it was made from, newest first; digests of models are printed in full."""
    from lsr_prod.jobs.terminal.tables import print_columns

    rows = []
    for ancestor in ancestors:
        training = ancestor.training or {}
        made = [training.get(name) for name in ("stage", "rows", "steps")]
        seed = training.get("settings", {}).get("seed")
        rows.append([ancestor.model, *made, seed, (training.get("training_set") or "")[:12]])
    print_columns("lineage", ("model", "made by", "rows", "steps", "seed", "training set"), rows, whole_digests=True)


def _add_push_options(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=location, help="folder or URI of a model directory")
    parser.add_argument("repository", metavar="OWNER/NAME", help="repository of Hugging Face; created if it is missing")
    parser.add_argument("--public", action="store_true", help="create a public repository; default: a private one")
    add_store_option(parser)


@partial(Command, "push", add_options=_add_push_options, output_required=False)
def push(given: argparse.Namespace) -> None:
    """Upload a model directory to a repository of Hugging Face.

        lsr-prod push MODEL OWNER/NAME [--public]

    No other command uploads anything. The token is that of ``hf auth login``, or ``HF_TOKEN``. Files of the repository
    that the model does not have are kept. Prints the repository and its commit.
    Exit codes: 0 done, 1 the upload failed, 2 bad usage, or no model directory.
    """
    from lsr_prod.errors import ConfigError, StorageError
    from lsr_prod.model import model_digest
    from lsr_prod.storage.folders import open_folder
    from lsr_prod.storage.formats.bundle_format import CARD_FILE

    # After lsr_prod.model, which names the missing extra: this library prints to stdout if it lacks a package.
    from huggingface_hub import HfApi  # isort: skip
    from huggingface_hub.errors import HFValidationError  # isort: skip

    folder = open_folder(given.model, store_options(given))
    if not (folder / CARD_FILE).is_file():
        raise ConfigError("MODEL", f"{given.model} has no {CARD_FILE}", "make a model directory with lsr-prod model")
    try:
        api = HfApi()
        api.create_repo(given.repository, private=not given.public, exist_ok=True)
        commit = api.upload_folder(
            repo_id=given.repository, folder_path=folder, commit_message=f"Upload model {model_digest(folder)}"
        )
    except HFValidationError as error:
        raise ConfigError("OWNER/NAME", " ".join(str(error).split()), "name a repository") from error
    except OSError as error:  # errors of HTTP and a missing token are of this type
        why = " ".join(str(error).split())[:300]
        raise StorageError(f"{given.repository} was not written ({type(error).__name__}: {why}); run again") from error
    say(f"{given.repository}: {commit.oid}")
