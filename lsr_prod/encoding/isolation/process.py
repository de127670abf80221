"""The process that holds the model of an ``IsolatedEncoder``: requests come on stdin, answers go to stdout.

::

    python -m lsr_prod.encoding.isolation.process LIFELINE FACTORY

The first answer says that the model is open and has encoded a word.
"""

import faulthandler
import fcntl
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from typing import IO, Any

import pyarrow as pa

from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.encoding.isolation.messages import read_message, vectors_to, write_message

__all__: list[str] = []

_STDOUT, _STDERR = 1, 2


def _main(lifeline: int, factory: EncoderFactory) -> None:
    _end_with(lifeline)
    faulthandler.enable(file=_STDERR)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)  # what native libraries print must not get between the answers
    encoder = factory.open()
    encoder.encode(["word"], kind="document", top_k=1, batch_tokens=1)
    write_message(answers, {}, {})
    while True:
        try:
            columns, facts = read_message(requests)
        except EOFError:
            return
        _answer(answers, encoder, columns, facts)


def _answer(answers: IO[bytes], encoder: TextEncoder, columns: pa.Table, facts: Mapping[str, Any]) -> None:
    try:
        vectors = encoder.encode(columns["texts"].to_pylist(), **facts)
    except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
        write_message(answers, {}, {"error": f"{type(error).__name__}: {error}"})
        return
    write_message(answers, vectors_to(vectors), {})


def _end_with(lifeline: int) -> None:
    """Let the kernel end this process when the parent's end of the pipe ``lifeline`` closes.

    This works for a process that hangs in native code. PR_SET_PDEATHSIG is no choice: it goes by the thread that
    started the process, and a thread may end before its process does.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(lifeline, 0)
    if closed.poll(0):  # before the signal was asked for
        sys.exit("the parent is gone")


if __name__ == "__main__":
    _main(int(sys.argv[1]), EncoderFactory(**json.loads(sys.argv[2])))
