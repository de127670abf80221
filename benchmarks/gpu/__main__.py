"""What one NVIDIA GPU does with a BERT-base of random weights; on a machine without one, every step at a toy size.

    python -m benchmarks.gpu [--toy] [--parts NAME ...] [--texts FILE] [--tokenizer FOLDER] [--work FOLDER] [--out FILE]

    parity    vectors of the fp32, fp16 and int8 bundles on CUDA (and TensorRT) against the CPU's
    speed     documents and tokens per second of each bundle, by tokens per batch; texts per second of the tokenizer
    job       the encode job on a local Ray, from JSON lines to a committed table: documents per second, how busy the
              GPU was, and dollars per million documents at ``--price``
    step      a training step against sentence-transformers' SpladeLoss: milliseconds, and memory above the model
    head      the pooled head against its bare matrix product
    once      a compiled model, and FSDP2 in a group of one: gradients equal those of a plain step

Random weights compute as long as trained ones. The bias leaves .75 % of the terms active in a text. Without ``--texts``
(JSON lines with the field text) the texts are a few short sentences, so that rates mean nothing.

A part that fails is shown with its error, the others go on, and the exit code is 1. Prints tables and a RESULT line.
``python -m benchmarks.gpu.parcels`` makes files for a machine that reaches no package index.
"""

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import encoding, training
from benchmarks.gpu.material import make_model, more_texts, read_texts
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from quickstart.models import model_folder

PARTS = ("parity", "speed", "job", "step", "head", "once")


def main(argv: Sequence[str]) -> int:
    """Run the parts and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="a tiny model: the default without a GPU")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--texts", type=Path, default=None, help="JSON lines with the field text, maybe of gzip")
    parser.add_argument("--tokenizer", type=Path, default=None, help="folder of a tokenizer; default: splade-tiny's")
    parser.add_argument(
        "--work", type=Path, default=None, help="keeps the model and the bundles; default: nothing is kept"
    )
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[4096, 16384, 65536], help="of the part speed")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate of the part speed")
    parser.add_argument("--documents", type=int, default=400_000, help="of the part job")
    parser.add_argument("--job", type=json.loads, default={}, help="settings of the section encode, as JSON")
    parser.add_argument("--price", type=float, default=3.0, help="dollars an hour of the machine; an example")
    parser.add_argument("--pairs", type=int, default=64, help="of a training step")
    parser.add_argument("--length", type=int, default=128, help="tokens of its texts")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures here, after each part")
    asked = parser.parse_args(argv)
    asked.toy |= training.device().type == "cpu"
    if asked.toy:
        asked.documents, asked.pairs, asked.length, asked.seconds = 200, 2, 16, 0.2
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.work or Path(scratch)
        return run(asked, folder)


def run(asked: argparse.Namespace, folder: Path) -> int:
    """Run every part."""
    texts = read_texts(asked.texts)
    model = folder / "model"
    if not model.is_dir():
        make_model(folder, asked.tokenizer or model_folder("splade-tiny"), texts, toy=asked.toy)
    precisions: tuple[str, ...] = encoding.PRECISIONS if {"parity", "speed"} & set(asked.parts) else ()
    parts: dict[str, Callable[[], object]] = {
        "parity": lambda: encoding.parity(folder, texts[:128]),
        "speed": lambda: encoding.speed(
            folder, more_texts(texts, 20 if asked.toy else 4096), asked.batch_tokens, asked.seconds
        ),
        "job": lambda: job(asked, folder, texts),
        "step": lambda: training.steps(model, asked.pairs, asked.length, 2 if asked.toy else 10),
        "head": lambda: training.head(model, asked.pairs, asked.length, 2 if asked.toy else 20),
        "once": lambda: training.once_each(model, min(asked.pairs, 8), asked.length),
    }
    values: dict[str, Any] = {"device": _device(), "toy": asked.toy, "texts": len(texts)}
    if "job" in asked.parts:
        precisions = tuple(dict.fromkeys((*precisions, _job_precision(asked))))
    for precision in precisions:
        if not (folder / precision).is_dir():
            shown = encoding.export(model, folder, precision)
            values[f"export_{precision}"] = {"seconds": round(shown["seconds"], 1), "parity": shown["parity_overlap"]}
    for name in asked.parts:
        try:
            values[name] = parts[name]()
        except Exception as error:  # noqa: BLE001 - the other parts say what they find
            traceback.print_exc()
            values[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
        show(name, values[name])
        if asked.out:
            asked.out.write_text(json.dumps(values, default=str, indent=1))
    if "speed" in asked.parts:
        values["tokenize"] = encoding.tokenize(folder, more_texts(texts, 20 if asked.toy else 4096))
    print_result(json.loads(json.dumps(values, default=str)))
    return int(any(isinstance(value, dict) and "failed" in value for value in values.values()))


def _job_precision(asked: argparse.Namespace) -> str:
    return "fp32" if asked.toy else "fp16"


def job(asked: argparse.Namespace, folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """The encode job, with its table in a folder that is deleted."""
    place = folder / "job"
    shutil.rmtree(place, ignore_errors=True)
    return encoding.encode_job(folder / _job_precision(asked), texts, place, asked.documents, asked.job, asked.price)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def show(name: str, found: Any) -> None:
    """Print what a part found."""
    if isinstance(found, list):
        print_columns(name, list(found[0]), [list(row.values()) for row in found])
    else:
        print_table(name, found)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
