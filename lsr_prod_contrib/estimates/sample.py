"""Tokens per document of a sample of a corpus, with the tokenizer and the lengths of a bundle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding.passages import PassageSplitter, check_lengths
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.storage.folders import open_bundle
from lsr_prod.storage.formats.bundle_format import TOKENIZER_FILE, EncoderCard

_PLACES = 16  # slices that documents are taken from, at even distances
_SMALLEST_SLICE = 1 << 16


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Tokens of a sample."""

    documents: int  # documents of the sample
    tokens: int  # tokens that the model would read, special ones included
    bundle_digest: str  # of the bundle

    @property
    def tokens_per_document(self) -> float:
        """Mean over the documents."""
        return self.tokens / self.documents


def sample_tokens(
    source: SourceSettings, encode: EncodeSettings, options: dict[str, str], *, documents: int
) -> SampledTokens:
    """Tokenize documents of a source as the encode job does."""
    try:
        folder, bundle = open_bundle(encode.bundle, options)
    except ArtifactError as error:
        raise ConfigError("encode.bundle", str(error), "give the folder or URI that lsr-prod export wrote") from error
    check_lengths(folder, encode)
    files = list(resolve_source(source, options))
    limit = max(sum(file.size for file in files) // _PLACES, _SMALLEST_SLICE)
    slices = list(cut_files(enumerate(files), source, limit, options))
    texts = _sample(Reader(source, 1, options), slices, documents)
    if not texts:
        raise ConfigError(
            "--sample", f"{source.paths[0]} has no row that can be encoded", "give documents of the corpus"
        )
    return SampledTokens(len(texts), sum(_lengths(texts, folder, encode)), bundle.digest)


def _sample(reader: Reader, slices: Sequence[Slice], documents: int) -> list[str]:
    count = min(len(slices), _PLACES)
    chosen = [slices[(2 * i + 1) * len(slices) // (2 * count)] for i in range(count)]
    texts: list[str] = []
    for left, piece in zip(range(count, 0, -1), sorted(chosen, key=lambda piece: piece.size), strict=True):
        texts += islice(_texts(reader, piece), -(-(documents - len(texts)) // left))
    return texts


def _texts(reader: Reader, piece: Slice) -> Iterator[str]:
    for rows in reader.read(piece):
        for text, reason in zip(rows["text"].to_pylist(), rows["reason"].to_pylist(), strict=True):
            if reason is None:
                yield text


def _lengths(texts: Sequence[str], folder: Path, encode: EncodeSettings) -> list[int]:
    """Return the tokens of each text that the model would read, in all passages of the text."""
    card = EncoderCard.load(folder)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    tokenizer.no_padding()
    max_length = encode.max_length or card.document_max_length
    if encode.passage_stride is not None:
        splitter = PassageSplitter(
            tokenizer,
            prompt=card.document_prompt,
            max_length=max_length,
            stride=encode.passage_stride,
            max_passages=encode.max_passages,
        )
        passages, _ = splitter.split(texts)
        return [sum(map(len, rows)) for rows in passages]
    tokenizer.enable_truncation(max_length)
    visible = [card.document_prompt + text for text in texts if text.strip()]
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(visible)]
