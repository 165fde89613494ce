"""`python -m vcdl` is the command `vcdl`."""

from vcdl.cli import main

if __name__ == "__main__":
    main()
