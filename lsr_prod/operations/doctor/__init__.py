"""Checks of a machine and of a deployment's stores before jobs run on them."""

from lsr_prod.operations.doctor.checks import examine
from lsr_prod.operations.doctor.machine import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
