"""Split texts into tokens with a file `tokenizer.json`, read by Hugging Face's package tokenizers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.data.rows import Array
from vcdl.errors import DataError, one_line


class Tokens:
    """A Hugging Face tokenizer, loaded from its JSON file.

    With a limit (`most`), each text gets the special tokens that the file defines, such as BOS and EOS, and is
    truncated to `most` tokens. Without a limit it gets neither.
    """

    def __init__(self, path: Path, most: int | None) -> None:
        """Load a tokenizer.

        Args:
            path: Its file, as `tokenizer.save()` writes it.
            most: Largest number of tokens of a text, or None for no limit and no special tokens.

        Raises:
            DataError: The package tokenizers is missing, or the file is not a tokenizer's.
        """
        self._name, self._marks = path.name, most is not None
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise DataError(
                f"{path.name} is read by the package tokenizers, which is not installed: pip install 'vcdl[text]'"
            ) from error
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exceptions
            raise DataError(
                f"{path.name} is not a tokenizer's file ({one_line(error)[:200]}): write it by tokenizer.save()"
            ) from error
        self._padding = self._tokenizer.padding
        # TextReader pads texts to the window. The tokenizer's own padding would be to the longest text of each batch.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if most is not None:
            self._tokenizer.enable_truncation(most)

    @property
    def padding(self) -> int:
        """Number of the token that fills a sample after the end of its text. Raises DataError if none is defined."""
        if self._padding is None:
            raise DataError(
                f"{self._name} defines no padding for the place after a text: call tokenizer.enable_padding"
            )
        return int(self._padding["pad_id"])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tokens, by their numbers."""
        size = self._tokenizer.get_vocab_size()
        return tuple(self._tokenizer.id_to_token(number) or f"#{number}" for number in range(size))

    def of(self, texts: Sequence[str]) -> list[Array]:
        """Return the token numbers of each text, int32."""
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=self._marks)
        return [np.array(one.ids, np.int32) for one in found]
