"""The event log of a run: its events, the database file that stores them, and the states computed from them."""
