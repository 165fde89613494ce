"""A client of a service elsewhere."""
