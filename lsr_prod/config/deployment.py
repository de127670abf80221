"""A whole deployment: all sections."""

from pydantic import Field, field_validator

from lsr_prod.config.corpus import EncodeSettings, MaintainSettings, SourceSettings
from lsr_prod.config.index import EvaluateSettings, IndexSettings
from lsr_prod.config.mine import MineSettings
from lsr_prod.config.model import ExportSettings
from lsr_prod.config.section import Section
from lsr_prod.config.serve import ServeSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.config.vectors import VectorsSettings

__all__ = ["Deployment", "RaySettings", "StorageSettings"]


class RaySettings(Section):
    """Where jobs run."""

    address: str | None = Field(
        None, description="Ray cluster; unset: RAY_ADDRESS if set, else a local one on loopback"
    )
    num_cpus: int | None = Field(None, ge=1, description="cores of the local cluster; unset: all of the machine")


class StorageSettings(Section):
    """How s3://, gs:// and az:// are reached."""

    options: dict[str, str] = Field(
        default_factory=dict,
        description="options of the object store, e.g. aws_endpoint, aws_region; credentials come from the environment",
    )

    @field_validator("options")
    @classmethod
    def _no_credentials(cls, options: dict[str, str]) -> dict[str, str]:
        for key in options:
            if any(word in key.lower() for word in ("secret", "token", "password", "access_key", "account_key")):
                raise ValueError(f"{key} is a credential; put it into the environment, not into a file")
        return options


class Deployment(Section):
    """All sections; a job demands those it reads."""

    ray: RaySettings = Field(RaySettings(), description="where jobs run")
    storage: StorageSettings = Field(StorageSettings(), description="object stores")
    source: SourceSettings | None = Field(None, description="the corpus")
    mine: MineSettings | None = Field(None, description="training pairs + index -> training rows with hard negatives")
    train: TrainSettings | None = Field(None, description="model -> trained model, by a chain of stages")
    export: ExportSettings | None = Field(None, description="model -> bundle")
    encode: EncodeSettings | None = Field(None, description="corpus -> sparse table")
    index: IndexSettings | None = Field(None, description="sparse table -> index")
    evaluate: EvaluateSettings | None = Field(None, description="index -> measures")
    maintain: MaintainSettings | None = Field(None, description="small parts merged, garbage deleted")
    vectors: VectorsSettings | None = Field(None, description="vectors of other tools <-> sparse table")
    serve: ServeSettings | None = Field(None, description="index -> answers, on Ray Serve")
