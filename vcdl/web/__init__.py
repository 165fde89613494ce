"""The service over a folder of runs: pages, an API and metrics, from the one fold of the journal."""
