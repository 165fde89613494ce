"""`python -m vcdl` runs the command `vcdl`."""

from vcdl.cli import main

if __name__ == "__main__":
    main()
