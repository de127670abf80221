"""``python -m lsr_prod`` runs the command ``lsr-prod``."""

from lsr_prod.jobs.command import main

if __name__ == "__main__":
    raise SystemExit(main())
