"""Entry point of ``lsr-prod index build`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["index", "build", *sys.argv[1:]]))
