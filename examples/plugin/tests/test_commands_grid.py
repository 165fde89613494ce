"""The grid of commands keeps what every grid promises."""

from vcdl_example.commands_grid import CommandsGrid

from vcdl.testing.grids import GridContract


class TestCommandsGrid(GridContract):
    open_grid = CommandsGrid
