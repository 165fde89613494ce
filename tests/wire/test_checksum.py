"""The checksum of vectors."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcdl.wire.checksum import Checksum, checksum_in, checksum_of

VECTOR = np.random.default_rng(3).standard_normal(1001).astype(np.float32)


@given(cuts=st.sets(st.integers(0, VECTOR.size)), order=st.randoms())
def test_blocks_of_any_size_come_in_any_order(cuts: set[int], order: Random) -> None:
    ends = [0, *sorted(cuts), VECTOR.size]
    blocks = list(pairwise(ends))
    order.shuffle(blocks)
    checksum = Checksum()
    for begin, end in blocks:
        checksum.add(VECTOR[begin:end], begin)
    assert checksum.text == checksum_of(VECTOR)


@pytest.mark.parametrize(
    "header", ["{}", '{"checksum"', '["checksum"]', '{"checksum": 3}', '"checksum"' + "[" * 50_000]
)
def test_a_header_without_one_names_none(header: str) -> None:
    assert checksum_in(header) == ""
