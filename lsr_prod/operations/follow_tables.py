"""Settings of a deployment that follow the table of its bundle.

After ``lsr-prod reindex`` with another bundle, ``encode.table`` stays the name of the first table, and all jobs work on
the table next to it (``table_generations``).
"""

from collections.abc import Mapping

from lsr_prod.config import Deployment, EncodeSettings, IndexSettings, MaintainSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.operations.table_generations import find_tables, is_retired, table_of_bundle
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, bundle_manifest
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.location import same_location
from lsr_prod.storage.publications import find_current_publication


def follow_tables(deployment: Deployment, options: Mapping[str, str] | None = None) -> Deployment:
    """Return the deployment with the table and quarantine of its bundle; unchanged if no other bundle was used."""
    section, name = (deployment.encode, "encode") if deployment.encode else (deployment.index, "index")
    assert section is not None
    first = Store(absolute(section.table), deployment.storage.options if options is None else dict(options))
    if not find_tables(first):
        return deployment
    table = table_of_bundle(first, _bundle_digest(section, name, first.options))
    if is_retired(table):
        raise ConfigError(
            f"{name}.table",
            f"{section.table} was retired when another bundle replaced its own",
            f"run lsr-prod reindex, which makes a table for the bundle, or give a new {name}.table",
        )
    return with_table(deployment, first, table)


def with_table(deployment: Deployment, first: Store, table: Store) -> Deployment:
    """Return the deployment with another table than the first one, and the quarantine of that table."""
    sections: dict[str, EncodeSettings | IndexSettings] = {}
    if table == first:
        return deployment
    if deployment.encode is not None:
        changed = {"table": table.uri, "quarantine": _beside(deployment.encode.quarantine, first, table)}
        sections["encode"] = deployment.encode.model_copy(update=changed)
    if deployment.index is not None:
        sections["index"] = deployment.index.model_copy(update={"table": table.uri})
    return deployment.model_copy(update=sections)


def follow_maintained_table(deployment: Deployment) -> Deployment:
    """Return the deployment with the table to maintain: that of the first index of ``maintain.indexes``, else the table
    with the newest commit; unchanged if no other bundle was used.
    """
    settings = deployment.maintain
    assert settings is not None
    first = Store(absolute(settings.table), deployment.storage.options)
    found = find_tables(first)
    if not found:
        return deployment
    published = _published_table(settings, first)
    named = [store for store, _ in found if published and same_location(store.location, published)]
    table = named[0] if named else max(found, key=lambda one: one[1].log()[-1].committed_at)[0]
    changed = {"table": table.uri, "quarantine": _beside(settings.quarantine, first, table)}
    return deployment.model_copy(update={"maintain": settings.model_copy(update=changed)})


def _published_table(settings: MaintainSettings, first: Store) -> str:
    """Return the table of the current version of the first index; "" if there is none."""
    for place in settings.indexes:
        index = Store(place, first.options)
        current = find_current_publication(index)
        return "" if current is None else read_version(index, current.version).table_uri
    return ""


def _beside(quarantine: str | None, first: Store, table: Store) -> str | None:
    """Return the quarantine of a table, with the suffix of its name."""
    suffix = table.uri.removeprefix(first.uri.rstrip("/"))
    return quarantine and f"{quarantine.rstrip('/')}{suffix}"


def _bundle_digest(section: EncodeSettings | IndexSettings, name: str, options: Mapping[str, str]) -> str:
    try:
        return bundle_manifest(section.bundle, options).digest
    except ArtifactError as error:
        raise ConfigError(f"{name}.bundle", str(error), "give the folder or URI that lsr-prod export wrote") from error
