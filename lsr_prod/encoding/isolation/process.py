"""Child process with the model of an ``IsolatedEncoder``: reads requests from stdin, writes answers to stdout.

::

    python -m lsr_prod.encoding.isolation.process LIFELINE

The first message on stdin is the factory of the encoder: arguments of a process are visible to all users. The first
answer is None and says that the model was opened and has encoded a word, or the error of the opening.
"""

import faulthandler
import fcntl
import os
import select
import signal
import sys

from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.isolation.isolated import read_message, write_message
from lsr_prod.errors import EncoderRaisedError, LsrError

__all__: list[str] = []

_STDOUT, _STDERR = 1, 2


def _main(lifeline: int) -> None:
    _end_with_parent(lifeline)
    faulthandler.enable(file=_STDERR)
    requests = sys.stdin.buffer
    factory: EncoderFactory = read_message(requests)
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)  # output of native libraries must not mix with the answers
    try:
        encoder = factory.open()
        encoder.encode(["word"])
    except LsrError as error:
        write_message(answers, error)
        return
    write_message(answers, None)
    while True:
        try:
            request = read_message(requests)
        except EOFError:
            return
        try:
            answer: object = encoder.encode(request)
        except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
            answer = EncoderRaisedError(f"{type(error).__name__}: {error}")
        write_message(answers, answer)


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
