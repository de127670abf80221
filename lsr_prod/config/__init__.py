"""Typed settings: one YAML file describes a deployment, every job reads its sections.

Any field can be overridden on the command line as ``--section.field value``. What decides a vector (casing, lengths,
prompts, pooled tokens) is not here: it belongs to the encoder card. Credentials are not here either: they come from the
environment, as the object store's own tools read them.
"""

from lsr_prod.config.corpus import EncodeSettings, MaintainSettings, SourceSettings
from lsr_prod.config.deployment import Deployment, RaySettings, StorageSettings
from lsr_prod.config.index import EvaluateSettings, IndexSettings
from lsr_prod.config.load import load_deployment
from lsr_prod.config.model import ExportSettings
from lsr_prod.config.serve import ServeSettings

__all__ = [
    "Deployment",
    "EncodeSettings",
    "EvaluateSettings",
    "ExportSettings",
    "IndexSettings",
    "MaintainSettings",
    "RaySettings",
    "ServeSettings",
    "SourceSettings",
    "StorageSettings",
    "load_deployment",
]
