"""The event log of a run: its events, and the database file that holds them."""
