"""Words of errors that quote what anybody wrote."""

import pytest
from pydantic import TypeAdapter, ValidationError

from vcdl.errors import first_fault


@pytest.mark.parametrize("key", ["[" * 100_000, "\x1b[2J\n"])
def test_a_fault_of_a_foreign_file_is_one_short_line(key: str) -> None:
    """A key of a record that was a hundred thousand brackets was printed whole."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(dict[str, int]).validate_python({key: "x"})
    for error in (refused.value, ValueError(key)):
        said = first_fault(error)
        assert len(said) <= 500
        assert said.isprintable()
