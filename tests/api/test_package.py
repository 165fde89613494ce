"""`import vcdl`: nothing heavy, and every public name is there when it is asked for."""

import subprocess
import sys

import pytest

import vcdl

HEAVY = ("keras", "tensorflow", "numpy", "matplotlib", "pydantic", "yaml", "rich", "h5py", "sklearn", "IPython")


@pytest.mark.process
def test_the_import_alone_loads_nothing_heavy() -> None:
    program = "import sys, vcdl; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(HEAVY)


def test_every_public_name_is_there() -> None:
    for name in vcdl.__all__:
        assert getattr(vcdl, name) is not None
        assert name in dir(vcdl)
    assert vcdl.open == vcdl.Run.open


def test_another_name_is_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'fit'"):
        vcdl.fit  # noqa: B018
