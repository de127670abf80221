"""Settings of a tuner for tests."""

from typing import Any

from lsr_prod import Index
from lsr_prod.config import Deployment

SETTINGS = {"measure": "RR@10", "thresholds": [0.0, 0.4], "folds": 2, "steps_per_octave": 2}


def deployment(searched: Index, places: dict[str, str], **changes: Any) -> Deployment:
    judged = {name: places[name] for name in ("queries", "qrels")}
    tune = {"index": str(searched.snapshot.index), **judged, **SETTINGS, **changes}
    return Deployment.model_validate({"tune": tune})
