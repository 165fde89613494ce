"""A job over a pool of pilots: clients that register on their own, and share a folder with the run."""
