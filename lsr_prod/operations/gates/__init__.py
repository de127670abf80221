"""Gates of a deployment: limits that a version must keep before it is published."""

from lsr_prod.operations.gates.check import Gatekeeper, check_gates, read_report
from lsr_prod.operations.gates.gates import GATES
from lsr_prod.operations.gates.report import GateReport, GateResult

__all__ = ["GATES", "GateReport", "GateResult", "Gatekeeper", "check_gates", "read_report"]
