"""Scenarios: chosen interleavings of attempts, maintenance and changes of the source.

Each is one function of a scene. A correct protocol passes all of them; a mutant has to fail one.
"""

from collections.abc import Callable, Mapping

from tests.faults.scenarios import attempts, maintenance, sources
from tests.faults.scene import Scene

__all__ = ["SCENARIOS", "Scenario"]

Scenario = Callable[[Scene], None]

SCENARIOS: Mapping[str, Scenario] = {
    name: getattr(module, name) for module in (attempts, maintenance, sources) for name in module.__all__
}
