"""Entry point of ``lsr-prod index restore`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["index", "restore", *sys.argv[1:]]))
