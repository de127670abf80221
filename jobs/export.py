"""Entry point of ``lsr-prod export`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["export", *sys.argv[1:]]))
