"""The sections of a deployment."""

from typing import Any

from pydantic import Field, field_validator

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod.config.corpus import EncodeSettings, MaintainSettings, SourceSettings
from lsr_prod.config.evaluate import EvaluateSettings
from lsr_prod.config.gates import GatesSettings
from lsr_prod.config.index import IndexSettings
from lsr_prod.config.mine import MineSettings
from lsr_prod.config.model import ExportSettings
from lsr_prod.config.report import ReportSettings
from lsr_prod.config.score import ScoreSettings
from lsr_prod.config.section import Section
from lsr_prod.config.serve import ServeSettings
from lsr_prod.config.sweep import SweepSettings, TuneSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.config.vectors import VectorsSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage.options import is_credential, normalize_options


class RaySettings(Section):
    """Ray cluster that runs the jobs."""

    address: str | None = Field(
        None, description="address of the Ray cluster; default: RAY_ADDRESS if set, else a local cluster on loopback"
    )
    num_cpus: int | None = Field(
        None, ge=1, description="cores of the local cluster; default: all cores of the machine"
    )


class StorageSettings(Section):
    """Access to object stores: s3://, gs://, az:// and abfss://."""

    options: dict[str, str] = Field(
        default_factory=dict,
        description="options of object stores, for example aws_endpoint, aws_region or allow_http "
        "(docs/object-stores.md lists them); credentials come from the environment",
    )

    @field_validator("options", mode="before")
    @classmethod
    def _known(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        for name in map(str, options):
            if is_credential(name):
                raise ConfigError(
                    f"storage.options.{name}", "it is a credential", "set it in the environment, not in the file"
                )
        return normalize_options(options)


class Deployment(Section):
    """All sections of a deployment; a job requires only the sections that it reads."""

    ray: RaySettings = Field(RaySettings(), description="Ray cluster that runs the jobs")
    storage: StorageSettings = Field(StorageSettings(), description="access to object stores")
    source: SourceSettings | None = Field(None, description="the documents to encode")
    mine: MineSettings | None = Field(None, description="hard negatives for training pairs, from an index")
    click_set: ClickSetSettings | None = Field(None, description="evaluation sets and training pairs from a click log")
    score: ScoreSettings | None = Field(None, description="scores of a teacher for training rows")
    train: TrainSettings | None = Field(None, description="training of a model by a chain of stages")
    export: ExportSettings | None = Field(None, description="export of a model as an ONNX bundle")
    encode: EncodeSettings | None = Field(None, description="encoding of the documents into a sparse table")
    index: IndexSettings | None = Field(None, description="index version of a sparse table")
    gates: GatesSettings = Field(GatesSettings(), description="limits of the gates before a publication")
    evaluate: EvaluateSettings | None = Field(None, description="evaluation of a published index")
    sweep: SweepSettings | None = Field(None, description="sweep over models, prunings, thresholds and hybrid weights")
    tune: TuneSettings | None = Field(None, description="tuning of the hybrid weight and the threshold of an index")
    maintain: MaintainSettings | None = Field(None, description="maintenance of a sparse table")
    vectors: VectorsSettings | None = Field(None, description="exchange of vectors with other tools")
    serve: ServeSettings | None = Field(None, description="serving of an index on Ray Serve")
    report: ReportSettings | None = Field(None, description="pages that jobs write; a folder or URI, or a section")

    @field_validator("report", mode="before")
    @classmethod
    def _folder(cls, report: Any) -> Any:
        return {"output": report} if isinstance(report, str) else report
