"""Make a model directory of any masked language model: ``python -m lsr_prod.model SOURCE DEST [--casing ...]``.

What decides a vector is set here, once, and stays with the model: lengths, prompts, casing, activation, pooled tokens,
and whether queries have a model.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from lsr_prod.errors import ConfigError, LsrError
from lsr_prod.model.encoder import SparseEncoder

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 done, 1 damaged source, 2 impossible settings, nothing written."""
    parser = argparse.ArgumentParser(prog="python -m lsr_prod.model", description=__doc__, allow_abbrev=False)
    parser.add_argument("source", help="folder or Hugging Face id of a masked language model")
    parser.add_argument("dest", type=Path, help="the model directory; must not exist, or hold the same model")
    parser.add_argument("--query-max-length", type=int, help="tokens of a query, special tokens included")
    parser.add_argument("--document-max-length", type=int, help="tokens of a document, special tokens included")
    parser.add_argument("--query-prompt", help="text put before every query")
    parser.add_argument("--document-prompt", help="text put before every document")
    parser.add_argument("--casing", choices=("none", "lowercase"), help="lowercase texts before they are tokenised")
    parser.add_argument("--activation", choices=("log1p_relu", "l0"), help="l0 takes the logarithm twice")
    parser.add_argument("--pooled-tokens", choices=("all", "not_bos"), help="not_bos leaves the first token out")
    parser.add_argument("--query-encoder", choices=("model", "idf"), help="idf: queries are weighed without a model")
    arguments = vars(parser.parse_args(argv))
    disable_progress_bar()  # type: ignore[no-untyped-call]
    source, dest = arguments.pop("source"), arguments.pop("dest")
    try:
        encoder = SparseEncoder.load(source, **{name: value for name, value in arguments.items() if value is not None})
        digest = encoder.save(dest)
    except ConfigError as error:
        sys.stderr.write(f"python -m lsr_prod.model: {error}\n")
        return 2
    except LsrError as error:
        sys.stderr.write(f"python -m lsr_prod.model: {error}\n")
        return 1
    sys.stdout.write(f"{dest}: {digest}\n")
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    raise SystemExit(main())
