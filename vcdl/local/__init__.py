"""The embedded local grid: the driver of a job on one machine, and its child processes."""
