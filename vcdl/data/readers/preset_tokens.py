"""Split texts into tokens with the tokenizer and packer of a KerasHub preset."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.data.rows import Array
from vcdl.errors import DataError, one_line


class PresetTokens:
    """A tokenizer of a KerasHub preset, with the interface of `Tokens`.

    With a length (`most`), it packs each text to that length, as the preset's classifier expects.
    """

    def __init__(self, folder: Path, most: int | None) -> None:
        """Load the tokenizer of a preset.

        Args:
            folder: The preset.
            most: Tokens to which each text is packed; None: texts are not packed.

        Raises:
            DataError: KerasHub is missing, or the folder is no preset with a tokenizer.
        """
        self._most = most
        try:
            import keras_hub
        except ImportError as error:
            raise DataError(
                f"{folder.name} is read by the package keras-hub, which is not installed: pip install 'vcdl[hub]'"
            ) from error
        try:
            self._tokenizer: Any = keras_hub.tokenizers.Tokenizer.from_preset(str(folder))
            if most is not None:
                self._packer = keras_hub.models.TextClassifierPreprocessor.from_preset(
                    str(folder), sequence_length=most
                )
        except Exception as error:  # KerasHub raises exceptions of many kinds
            raise DataError(
                f"{folder} has no usable tokenizer ({one_line(error)[:300]}): write it by "
                "preprocessor.save_to_preset(folder)"
            ) from error

    @property
    def padding(self) -> int:
        """Number of the token that fills a sample after the end of its text."""
        return int(self._tokenizer.pad_token_id)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tokens, by their numbers."""
        return tuple(self._tokenizer.id_to_token(number) for number in range(self._tokenizer.vocabulary_size()))

    def of(self, texts: Sequence[str]) -> list[Array]:
        """Return the token numbers of each text, int32."""
        if self._most is None:
            return [np.asarray(row, np.int32) for row in self._tokenizer(list(texts))]
        packed = self._packer(list(texts))
        return list(np.asarray(packed["token_ids"], np.int32))
