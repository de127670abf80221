"""Entry point of ``lsr-prod verify`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["verify", *sys.argv[1:]]))
