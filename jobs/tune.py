"""Entry point of ``lsr-prod tune`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["tune", *sys.argv[1:]]))
