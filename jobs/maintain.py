"""Entry point of ``lsr-prod table maintain`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["table", "maintain", *sys.argv[1:]]))
