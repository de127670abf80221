"""Make a model directory from a masked language model, a SPLADE checkpoint or BGE-M3.

    lsr-prod model SOURCE DEST [--casing lowercase] [--document-max-length 256]

The settings that decide a vector are fixed here and stay with the model in its encoder card: lengths, prompts, casing,
activation, pooled tokens, and whether queries are encoded by the model. Prints the folder and its digest.
Exit codes: 0 done, 1 damaged source, 2 bad usage or impossible settings (nothing was written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("model", __doc__)
    options.add_argument(
        "source", metavar="SOURCE", type=location, help="folder, URI or Hugging Face id of a masked language model"
    )
    options.add_argument(
        "dest", metavar="DEST", type=location, help="folder or URI of the model; must not exist, or hold the same model"
    )
    add_store_option(options)
    options.add_argument(
        "--query-max-length", type=int, metavar="N", help="maximum tokens of a query, special tokens included"
    )
    options.add_argument(
        "--document-max-length", type=int, metavar="N", help="maximum tokens of a document, special tokens included"
    )
    options.add_argument("--query-prompt", metavar="TEXT", help="text put before every query")
    options.add_argument("--document-prompt", metavar="TEXT", help="text put before every document")
    options.add_argument("--casing", choices=("none", "lowercase"), help="lowercase: lowercase texts before tokenizing")
    options.add_argument("--activation", choices=("log1p_relu", "l0"), help="l0: apply the logarithm twice")
    options.add_argument("--pooled-tokens", choices=("all", "not_bos"), help="not_bos: leave out the first token")
    options.add_argument(
        "--query-encoder",
        choices=("model", "idf", "learned"),
        help="idf: inference-free queries, weighted by IDF; learned: by a table that finetune trains",
    )
    return options


def main(argv: Sequence[str]) -> int:
    """Make the model directory; returns the exit code."""
    return exit_code("model", lambda: _make(argv), output_required=False)


def _make(argv: Sequence[str]) -> None:
    parsed = parser().parse_args(argv)
    options = store_options(parsed)
    source, dest = parsed.source, parsed.dest
    fields = {name: value for name, value in vars(parsed).items() if name not in ("source", "dest", "store_option")}
    # Imported after the arguments are parsed: torch and transformers take seconds to load.
    from transformers.utils.logging import disable_progress_bar

    from lsr_prod.model import SparseEncoder
    from lsr_prod.model.directory import folder_to_save
    from lsr_prod.storage import is_remote
    from lsr_prod.storage.folders import open_source

    disable_progress_bar()  # type: ignore[no-untyped-call]
    encoder = SparseEncoder.load(
        open_source(source, options), **{name: value for name, value in fields.items() if value is not None}
    )
    if is_remote(dest):
        with folder_to_save(dest, options, field="DEST") as folder:
            digest = encoder.save(folder)
    else:
        digest = encoder.save(dest)
    say(f"{dest}: {digest}")
