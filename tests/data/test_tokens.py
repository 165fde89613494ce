"""Texts that a tokenizer file cuts into tokens: windows of them, and lines with a label."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.data import Dataset, load_dataset
from vcdl.data.rows import Rows
from vcdl.errors import DataError
from vcdl.job.data import DataSettings

tokenizers = pytest.importorskip("tokenizers")
WORDS = ("[PAD]", "[UNK]", "the", "cat", "sat", "on", "mat")


def written(folder: Path, *, pads: bool = True) -> Path:
    """A tokenizer of whole words."""
    model = tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if pads:
        made.enable_padding(pad_id=0, pad_token="[PAD]")
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def loaded(folder: Path, **keys: Any) -> Dataset:
    source = {"path": "text.txt", "tokenizer": "tokenizer.json", **keys.pop("source", {})}
    return load_dataset(DataSettings.model_validate({"from": source, "validation": 1, **keys}, context=folder), 1)


def source_of(data: Dataset) -> Any:
    assert isinstance(data.x_train, Rows)
    return np.concatenate(list(data.x_train.source_blocks()))


def test_a_window_of_tokens_is_continued_by_one(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "text.txt").write_text("the cat sat\non the mat\n\nthe dog sat on\n")
    data = loaded(tmp_path, source={"window": 3}, task="sequence")
    assert source_of(data).tolist() == [[2, 3, 4], [5, 2, 6], [2, 1, 4]]
    assert source_of(data).dtype == np.uint8
    assert data.classes is not None
    assert data.classes.names == WORDS
    labels = {tuple(y) for y in (*data.y_train.tolist(), *data.y_val.tolist())}
    assert labels == {(3, 4, 5), (2, 6, 2), (1, 4, 5)}


def test_lines_are_filled_up_or_cut_off_as_the_file_says(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "text.txt").write_text("a\tthe cat\nb\tthe cat sat on the mat\na\tmat\nb\ton the mat\n")
    data = loaded(tmp_path, source={"window": 4, "lines": True})
    assert source_of(data).tolist() == [[2, 3, 0, 0], [2, 3, 4, 5], [6, 0, 0, 0], [5, 2, 6, 0]]


def test_a_text_is_read_anew_when_its_tokenizer_is_another_one(tmp_path: Path) -> None:
    tokenizer, text = written(tmp_path), tmp_path / "text.txt"
    text.write_text("the cat sat\non the mat\n" * 4)
    for file, seconds in ((text, 1000), (tokenizer, 1000)):
        os.utime(file, (seconds, seconds))
    before = loaded(tmp_path, source={"window": 3}, task="sequence").x_train
    held = json.loads(tokenizer.read_text())
    held["model"]["vocab"] |= {"cat": 4, "sat": 3}
    tokenizer.write_text(json.dumps(held))
    os.utime(tokenizer, (2000, 2000))
    after = loaded(tmp_path, source={"window": 3}, task="sequence").x_train
    assert isinstance(before, Rows)
    assert isinstance(after, Rows)
    assert before.sha256 != after.sha256


def test_wrong_tokenizers_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a\tthe cat\nb\tthe mat\n")
    written(tmp_path, pads=False)
    with pytest.raises(DataError, match=r"tokenizer\.json defines no padding for the place after a text"):
        loaded(tmp_path, source={"lines": True})
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json is not a tokenizer's file .*: write it by tokenizer\.save"):
        loaded(tmp_path, source={"lines": True, "window": 5})
