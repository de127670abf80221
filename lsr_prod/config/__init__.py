"""Typed settings: one YAML file describes a deployment, every job reads its sections.

Any field can be overridden on the command line as ``--section.field value``. Settings that decide a vector (casing,
lengths, prompts, pooled tokens) are in the encoder card instead. Credentials come from the environment, in the
variables that the tools of the object store read.
"""

from lsr_prod.config.corpus import CsvSettings, EncodeSettings, MaintainSettings, SourceSettings
from lsr_prod.config.deployment import Deployment, IndexSettings, RaySettings, ServeSettings, StorageSettings
from lsr_prod.config.evaluate import CollectionSettings, EvaluateSettings, SweepSettings, TuneSettings
from lsr_prod.config.language import AdaptCausalSettings, AdaptMlmSettings, DistilHeadSettings, PretrainEmlmSettings
from lsr_prod.config.load import load_deployment
from lsr_prod.config.mine import MineSettings, ScoreSettings, TeacherModelSettings, TeacherScoresSettings
from lsr_prod.config.model import (
    AdaptEncoderSettings,
    CalibrateSettings,
    ExpandVocabularySettings,
    ExportSettings,
    RescaleHeadSettings,
    TransferVocabularySettings,
)
from lsr_prod.config.training import FinetuneSettings, StageSettings, TrainSettings

__all__ = [
    "AdaptCausalSettings",
    "AdaptEncoderSettings",
    "AdaptMlmSettings",
    "CalibrateSettings",
    "CollectionSettings",
    "CsvSettings",
    "Deployment",
    "DistilHeadSettings",
    "EncodeSettings",
    "EvaluateSettings",
    "ExpandVocabularySettings",
    "ExportSettings",
    "FinetuneSettings",
    "IndexSettings",
    "MaintainSettings",
    "MineSettings",
    "PretrainEmlmSettings",
    "RaySettings",
    "RescaleHeadSettings",
    "ScoreSettings",
    "ServeSettings",
    "SourceSettings",
    "StageSettings",
    "StorageSettings",
    "SweepSettings",
    "TeacherModelSettings",
    "TeacherScoresSettings",
    "TrainSettings",
    "TransferVocabularySettings",
    "TuneSettings",
    "load_deployment",
]
