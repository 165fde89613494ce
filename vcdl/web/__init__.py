"""The web service over a folder of runs: pages, an API and metrics, all computed from the jobs' journals."""
