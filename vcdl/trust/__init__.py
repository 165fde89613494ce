"""Trust in clients: how much an upload of a stranger counts, and how lies are found."""
