"""The command ``lsr-prod``: one module per command, listed in ``command.COMMANDS``.

The docstring of a module is the manual of its command; ``main(argv)`` runs it and returns the exit code: 0 done,
1 failed, 2 bad usage or bad configuration (nothing was written).
"""
