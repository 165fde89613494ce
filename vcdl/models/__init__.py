"""Build models, built in, from a file, or by a Python function, and check that they fit their data."""
