"""The Python interface of VCDL: start a run in a child process, and follow, pause and read it by its folder."""
