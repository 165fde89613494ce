"""VCDL for Python programs and notebooks: a run's handle reads its folder, and a child process trains."""
