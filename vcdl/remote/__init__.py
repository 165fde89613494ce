"""A client of a service on another machine."""
