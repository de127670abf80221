"""Entry point of ``lsr-prod encode`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["encode", *sys.argv[1:]]))
