"""Checks of a machine and of a deployment's stores before jobs run on them."""

from lsr_prod_contrib.doctor.checks import examine
from lsr_prod_contrib.doctor.machine import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
