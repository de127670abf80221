"""BEIR folders: the corpus is ``corpus.jsonl``, compressed or not."""

from collections.abc import Iterator

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.interface import FolderFormat
from lsr_prod.corpus.pinning import pin_files
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store

_FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst")


def _corpus(path: str, options: dict[str, str]) -> tuple[Entry, str] | None:
    store = Store(path, options)
    found = ((store.entry(f"corpus.{file_format}"), file_format) for file_format in _FORMATS)
    return next(((entry, file_format) for entry, file_format in found if entry is not None), None)


def _is_beir(path: str, options: dict[str, str]) -> bool:
    return _corpus(path, options) is not None


def _files(path: str, _settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    found = _corpus(path, options)
    if found is None:
        raise ConfigError("source.paths", f"{path} has no corpus.jsonl", "give a BEIR folder")
    yield from pin_files(iter([(path, *found)]))


BEIR = FolderFormat("beir", _is_beir, _files)
