"""The text of one shard's documents, opened by the first query that needs it."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.digest import verify_files
from lsr_prod.formats.shard import TANTIVY_FOLDER
from lsr_prod.search.shard.open_shard import OpenShard

if TYPE_CHECKING:
    from lsr_prod.search.boolean_shard import BooleanShard


class ShardText:
    """Finds documents by the tokens of their text. Safe to share between threads.

    Attributes:
        shard: the shard.
    """

    def __init__(self, shard: OpenShard, *, verify: bool) -> None:
        """Remember the shard; nothing is opened yet."""
        self.shard = shard
        self._verify = verify

    @cached_property
    def boolean(self) -> "BooleanShard":
        """The Tantivy index."""
        from lsr_prod.search.boolean_shard import BooleanShard

        if self._verify:
            files = [file for file in self.shard.manifest.files if file.path.startswith(f"{TANTIVY_FOLDER}/")]
            verify_files(self.shard.folder, files)
        return BooleanShard.open(self.shard)

    def find(self, tokens: Sequence[str]) -> npt.NDArray[np.uint8]:
        """Return uint8 [N]: 1 for documents whose text contains all tokens, deleted ones included.

        The postings of words find them, or Tantivy if the shard was built without BM25.
        """
        found = np.zeros(self.shard.manifest.documents, np.uint8)
        if not tokens:
            found[:] = 1
        elif self.shard.words is None:
            found[self.boolean.match_tokens(tokens)] = 1
        else:
            ids = self.shard.words.ids(tokens)
            if ids.min() >= 0:
                found[self.shard.postings.match_all(ids)] = 1
        return found
