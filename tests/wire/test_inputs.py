"""Several inputs travel as one array, and reach Keras by name."""

import numpy as np

from vcdl.wire.inputs import as_keras_takes, format_shape, pack_inputs, sample_shape

WORDS, TABLE = np.arange(12, dtype=np.int32).reshape(4, 3), np.linspace(0, 1, 8).reshape(4, 2)


def test_inputs_come_out_as_they_went_in_whatever_samples_are_taken() -> None:
    both = pack_inputs({"words": WORDS, "table": TABLE})
    assert (len(both), both[1:3].nbytes) == (4, 2 * (3 * 4 + 2 * 8))
    taken = as_keras_takes(both[[3, 0]])
    assert isinstance(taken, dict)
    assert {name: part.dtype for name, part in taken.items()} == {"words": WORDS.dtype, "table": TABLE.dtype}
    np.testing.assert_array_equal(taken["words"], WORDS[[3, 0]])
    np.testing.assert_array_equal(taken["table"], TABLE[[3, 0]])
    assert all(part.flags.c_contiguous for part in taken.values())


def test_shapes_are_those_of_a_sample() -> None:
    both = pack_inputs({"words": WORDS, "table": TABLE})
    assert sample_shape(TABLE) == (2,)
    assert sample_shape(both) == {"words": (3,), "table": (2,)}
    assert (format_shape((2,)), format_shape(sample_shape(both))) == ("(2,)", "words (3,), table (2,)")
