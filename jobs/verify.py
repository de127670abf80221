"""Entry point of ``lsr-prod table verify`` for ``ray job submit``."""

import sys

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main(["table", "verify", *sys.argv[1:]]))
