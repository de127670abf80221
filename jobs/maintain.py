"""Entry point of ``lsr-prod maintain`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["maintain", *sys.argv[1:]]))
