"""VCDL for Python programs and notebooks: a run's handle is a view of its folder, and a child process trains."""
