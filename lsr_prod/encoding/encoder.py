"""Encoders of documents: their protocol, and a factory by name, so that every process opens the same encoder."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lsr_prod.storage.formats.sparse import SparseBatch


class TextEncoder(Protocol):
    """Encoder of documents; its lengths, terms and batches were fixed when it was opened."""

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return one vector per text, in order."""


@dataclass(frozen=True, slots=True)
class EncoderFactory:
    """Name of a function that opens an encoder, with its arguments."""

    function: str  # ``module:function``, importable in every process that opens the encoder
    arguments: Mapping[str, Any]  # its keyword arguments

    def open(self) -> TextEncoder:
        """Call the function in this process."""
        module, _, name = self.function.partition(":")
        encoder: TextEncoder = getattr(importlib.import_module(module), name)(**self.arguments)
        return encoder
