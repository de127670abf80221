"""Settings of the report pages that jobs write."""

from pydantic import Field

from lsr_prod.config.location import LocalPath, Location
from lsr_prod.config.section import Section


class ReportSettings(Section):
    """Report pages that jobs write at their end; needs the extra ``pages``."""

    output: Location = Field(description="folder or URI for the pages; pages of the same name are replaced")
    cluster: LocalPath | None = Field(
        None, description="YAML file with prices, as for lsr-prod table estimate, for the cost of encode runs"
    )
    sample: int = Field(2000, ge=1, le=100_000, description="documents that the page of an index reads")
