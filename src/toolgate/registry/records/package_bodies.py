"""The shape of a package as it is installed."""

from typing import Annotated

from pydantic import Field

from toolgate.model.packages import Package, SchemaVersion, Source
from toolgate.registry.records.fields import Label, LongText, ServerId, Sha256, Tag, Title, Version
from toolgate.registry.records.server_bodies import StrictBody


class PackageBody(StrictBody):
    """An installed package. Written by installing one; what it declares is in its manifest."""

    package_id: ServerId
    """Its name, and that of its server."""

    version: Version
    """Which version is installed."""

    sha256: Sha256
    """Of its archive."""

    name: Title = ""
    """For people."""

    description: LongText = ""
    """What it is for."""

    category: Label = ""
    """One heading to list it under."""

    tags: list[Tag] = Field(default=[], max_length=64)
    """Words to find it by."""

    schema_version: SchemaVersion = "legacy"
    """Of its manifest."""

    source: Source = "legacy"
    """How far its manifest describes its tools: `manifest` in full, `summary` by name, `legacy` not."""

    declared: list[Annotated[str, Field(max_length=128)]] = Field(default=[], max_length=2_000)
    """The tools its manifest names."""

    attached: bool = False
    """Whether it only describes its server, which is registered by itself."""

    def value(self) -> Package:
        return Package(
            package_id=self.package_id,
            version=self.version,
            sha256=self.sha256,
            name=self.name,
            description=self.description,
            category=self.category,
            tags=tuple(self.tags),
            schema_version=self.schema_version,
            source=self.source,
            declared=tuple(self.declared),
            attached=self.attached,
        )
