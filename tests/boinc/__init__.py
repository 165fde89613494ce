"""Tests of the BOINC side; those of `test_real_*.py` want a real project."""

import pytest

pytest.register_assert_rewrite("tests.boinc.real_project")  # what an uninstall left is then told by name
