"""Training sets made without Ray, part by part."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data.known_positives import key_ranges, write_key_range
from lsr_prod.training.data.layouts import TextForm, TokenSettings
from lsr_prod.training.data.parts import PartMaker
from lsr_prod.training.data.prepare import _seal
from lsr_prod.training.data.training_rows import cut_data, pin_files
from lsr_prod.training.data.training_set import SetRecord, set_name

__all__ = ["bytes_as_tokens", "make_set", "part_maker", "write_part"]


def bytes_as_tokens() -> TokenSettings:
    """Every letter a to z is a token, its place in the alphabet; nothing else is any."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    letters = {chr(ord("a") + place): place for place in range(26)}
    return TokenSettings(Tokenizer(BPE(letters, [])).to_str(), TextForm("", 9), TextForm("", 12))


def part_maker(work: Path, kind: str, *, needs_negative: bool = False) -> PartMaker:
    """A maker of parts of a set that ``made_from`` names."""
    data = TrainingDataSettings(paths=[str(work / "data")], kind=kind)
    digest = digest_json(made_from(kind))
    return PartMaker(data, bytes_as_tokens(), needs_negative, digest, Store(str(work / "store")), {})


def made_from(kind: str) -> dict[str, Any]:
    """What names a set of these tests."""
    return {"kind": kind}


def write_part(work: Path, number: int, kind: str, rows: Sequence[dict[str, Any]]) -> list[Slice]:
    """The rows as a file, and its slices."""
    path = work / "data" / f"{number}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = TrainingDataSettings.model_validate({"paths": [str(path)], "kind": kind})
    return list(cut_data(pin_files(data, {}), data, 10**9, {}))


def make_set(work: Path, kind: str, parts: Sequence[Sequence[dict[str, Any]]]) -> tuple[Store, str]:
    """A work store and the digest of a set in it that has these parts."""
    maker = part_maker(work, kind)
    made = tuple(maker.make(number, write_part(work, number, kind, rows)) for number, rows in enumerate(parts))
    folder, files = maker.store.child(set_name(maker.digest)), [part.file for part in made if part.file]
    ranges = key_ranges(sum(sum(part.batches) for part in made))
    keys = tuple(write_key_range(folder, files, first, last) for first, last in ranges)
    _seal(maker.store, SetRecord(made_from(kind), made, keys))
    return maker.store, maker.digest
