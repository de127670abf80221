"""Entry point of ``lsr-prod index takedown`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["index", "takedown", *sys.argv[1:]]))
