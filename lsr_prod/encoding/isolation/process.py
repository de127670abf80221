"""Child process with the model of an ``IsolatedEncoder``: reads requests from stdin, writes answers to stdout.

::

    python -m lsr_prod.encoding.isolation.process LIFELINE

The first message on stdin is the factory of the encoder: arguments of a process are visible to all users. The first
answer is empty and says that the model was opened and has encoded a word, or holds the error of the opening.
"""

import faulthandler
import fcntl
import os
import pickle
import select
import signal
import sys
from typing import IO

import pyarrow as pa

from lsr_prod.encoding.encoder import EncoderFactory, TextEncoder
from lsr_prod.encoding.isolation.isolated import error_to, read_message, vectors_to, write_message
from lsr_prod.errors import LsrError

__all__: list[str] = []

_STDOUT, _STDERR = 1, 2


def _main(lifeline: int) -> None:
    _end_with_parent(lifeline)
    faulthandler.enable(file=_STDERR)
    requests = sys.stdin.buffer
    factory: EncoderFactory = pickle.load(requests)  # noqa: S301 - of the parent; nothing comes back as a pickle
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)  # output of native libraries must not mix with the answers
    try:
        encoder = factory.open()
        encoder.encode(["word"])
    except LsrError as error:
        write_message(answers, error_to(error))
        return
    write_message(answers, {})
    while True:
        try:
            request = read_message(requests)
        except EOFError:
            return
        _answer(answers, encoder, request)


def _answer(answers: IO[bytes], encoder: TextEncoder, request: pa.Table) -> None:
    try:
        vectors = encoder.encode(request["texts"].to_pylist())
    except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
        write_message(answers, {"error": pa.array([f"{type(error).__name__}: {error}"], pa.large_string())})
        return
    write_message(answers, vectors_to(vectors))


def _end_with_parent(lifeline: int) -> None:
    """Let the kernel end this process when the parent's end of the pipe ``lifeline`` closes.

    This also ends a process that hangs in native code. PR_SET_PDEATHSIG does not work here: it fires when the thread
    that started the process ends, and a thread may end before its process.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(lifeline, 0)
    if closed.poll(0):  # it closed before the signal was requested
        sys.exit("the parent process has ended")


if __name__ == "__main__":
    _main(int(sys.argv[1]))
