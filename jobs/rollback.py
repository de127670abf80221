"""Entry point of ``lsr-prod index rollback`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["index", "rollback", *sys.argv[1:]]))
