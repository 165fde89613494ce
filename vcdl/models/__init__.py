"""Models: built in, given in a file, or made by a Python function; and the check that one fits its data."""
