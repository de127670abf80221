"""What encodes texts, as a protocol, and how a process opens one by name."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lsr_prod.formats.card import Kind
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.inference import BundleEncoder

__all__ = ["EncoderFactory", "TextEncoder", "open_bundle"]


class TextEncoder(Protocol):
    """What encoding a corpus needs of a ``BundleEncoder``."""

    def encode(self, texts: Sequence[str], *, kind: Kind, top_k: int, batch_tokens: int) -> SparseBatch:
        """One vector a text, in order."""


@dataclass(frozen=True, slots=True)
class EncoderFactory:
    """Names a function that opens an encoder, so that any process can open the same one.

    Attributes:
        function: ``module:function``, importable there.
        arguments: its keyword arguments; JSON values only.
    """

    function: str
    arguments: Mapping[str, Any]

    @classmethod
    def of_bundle(cls, folder: Path | str, **options: Any) -> "EncoderFactory":
        """The encoder of a bundle; ``options`` go to ``BundleEncoder``."""
        return cls(f"{__name__}:{open_bundle.__name__}", {"folder": str(folder), **options})

    def open(self) -> TextEncoder:
        """Call the function in this process."""
        module, _, name = self.function.partition(":")
        encoder: TextEncoder = getattr(importlib.import_module(module), name)(**self.arguments)
        return encoder


def open_bundle(folder: str, **options: Any) -> BundleEncoder:
    """The encoder of the bundle in ``folder``; ``options`` go to ``BundleEncoder``."""
    return BundleEncoder(Path(folder), **options)
