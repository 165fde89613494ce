"""A whole server, its plan, and machines of its own: `make test-server`."""
