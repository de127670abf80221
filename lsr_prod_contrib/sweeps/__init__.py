"""Sweeps over models, prunings, thresholds and hybrid weights: measured points, Pareto fronts, and the chosen setting.

``plan`` validates settings and names every point by digest, ``vectors`` encodes each text once, ``job`` measures the
missing points on Ray, ``pareto`` and ``choice`` look for good settings, ``report`` writes them.
"""

from lsr_prod_contrib.sweeps.plan import Point
from lsr_prod_contrib.sweeps.report import Choice, SweepReport

__all__ = ["Choice", "Point", "SweepReport"]
