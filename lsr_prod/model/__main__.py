"""``python -m lsr_prod.model SOURCE DEST`` is an alias of ``lsr-prod model SOURCE DEST``."""

from importlib import import_module

if __name__ == "__main__":
    # Imported by name: this package is below lsr_prod.jobs and must not depend on it.
    command = import_module("lsr_prod.jobs.command")
    raise SystemExit(command.run_alias("python -m lsr_prod.model", "model"))
