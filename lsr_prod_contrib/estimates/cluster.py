"""Description of a cluster and its prices, a YAML file of its own."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from lsr_prod.config.load import read_yaml
from lsr_prod.config.section import Section
from lsr_prod.errors import ConfigError

RequestKind = Literal["put", "get", "list", "delete"]
REQUEST_KINDS: tuple[RequestKind, ...] = ("put", "get", "list", "delete")


class ClusterDescription(Section):
    """A cluster on which a corpus is to be encoded, and what it costs."""

    name: str = Field(min_length=1)
    """name of the cluster in the output"""
    nodes: int = Field(ge=1)
    """number of nodes that run encoder actors"""
    actors_per_node: int = Field(ge=1)
    """encoder actors per node, with as many threads as in the measured run"""
    speed: float = Field(gt=0, allow_inf_nan=False)
    """tokens per second of an actor, divided by those of the measured machine"""
    busy_share: float | None = Field(None, gt=0, le=1)
    """share of the time in which the encoders work; default: that of the measured run"""
    price_per_node_hour: float = Field(ge=0, allow_inf_nan=False)
    """price of one node for one hour"""
    storage_price_per_gb_month: float = Field(ge=0, allow_inf_nan=False)
    """price of 1 GB (1e9 bytes) in the object store for one month"""
    request_prices: dict[RequestKind, float]
    """price of 1,000 requests to the object store, for each of put, get, list and delete"""
    currency: str = Field("USD", min_length=1)
    """unit of all prices"""

    @field_validator("request_prices")
    def _all_kinds(cls, prices: dict[RequestKind, float]) -> dict[RequestKind, float]:
        if missing := [kind for kind in REQUEST_KINDS if kind not in prices]:
            raise ValueError(f"the price of {', '.join(missing)} is missing; write 0 for requests that are free")
        if any(not 0 <= price < float("inf") for price in prices.values()):
            raise ValueError("a price is 0 or more")
        return prices

    @property
    def actors(self) -> int:
        """Encoder actors of all nodes."""
        return self.nodes * self.actors_per_node


def load_cluster(path: Path) -> ClusterDescription:
    """Read the description of a cluster."""
    value = read_yaml("--cluster", path)
    fields = ", ".join(ClusterDescription.model_fields)
    if not isinstance(value, dict):
        raise ConfigError("--cluster", f"{path} has no fields", f"describe the cluster by {fields}")
    try:
        return ClusterDescription.model_validate({str(name): each for name, each in value.items()})
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        field = ".".join(["--cluster", *(str(part) for part in found["loc"])])
        if found["type"] == "extra_forbidden":
            raise ConfigError(field, "there is no such field", f"available: {fields}") from error
        if found["type"] == "missing":
            raise ConfigError(field, "it is required, but was not given", f"set it in {path}") from error
        message = found["msg"].removeprefix("Value error, ")
        raise ConfigError(field, f"{found['input']!r} is not possible", message[0].lower() + message[1:]) from error
