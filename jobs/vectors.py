"""Entry point of ``lsr-prod vectors`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["vectors", *sys.argv[1:]]))
