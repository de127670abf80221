"""The command ``lsr-prod``: its commands are listed in ``command.COMMANDS``, one module per subject.

A command is a ``Command``, or a ``Job`` if it reads a deployment (both in ``terminal.shell``). The docstring
of the function that it is made of is its manual; ``run(argv)`` returns the exit code: 0 done, 1 failed, 2 bad usage or
bad configuration (nothing was written).
"""
