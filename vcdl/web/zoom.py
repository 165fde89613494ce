"""A job's course as charts that can be zoomed, which Bokeh's script from its installed package draws in the browser."""

import json
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from vcdl.errors import GridError
from vcdl.journal.monitor import EpochDetail
from vcdl.report.wording import duration
from vcdl.wire.task import LOSS

HAS_BOKEH = find_spec("bokeh") is not None
_BLUE, _ORANGE, _GREY = "#0072b2", "#e69f00", "#7d858e"
"""Each stands out on white and on black, as the chart does not know which it is on."""
_THEME = {
    "figure": {"background_fill_alpha": 0, "border_fill_alpha": 0, "outline_line_alpha": 0},
    "Axis": {"axis_label_text_color": _GREY, "major_label_text_color": _GREY, "axis_line_color": _GREY},
    "Grid": {"grid_line_color": _GREY, "grid_line_alpha": 0.3},
    "Title": {"text_color": _GREY},
    "Legend": {"background_fill_alpha": 0, "label_text_color": _GREY},
    "Toolbar": {"logo": None},
}


def zoom_item(epochs: Sequence[EpochDetail], measure: str) -> str:
    """The charts as JSON that Bokeh's script reads: the measure with its band, and the losses, of each epoch.

    Raises GridError where Bokeh is not installed.
    """
    if not HAS_BOKEH:
        raise GridError("bokeh is not installed: `pip install 'vcdl[zoom]'` brings it")
    from bokeh.embed import json_item
    from bokeh.layouts import column
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure
    from bokeh.themes import Theme

    source = ColumnDataSource(
        {
            "epoch": [one.epoch for one in epochs],
            "mean": [one.mean for one in epochs],
            "low": [one.min for one in epochs],
            "high": [one.max for one in epochs],
            "loss": [one.measures.get(LOSS, math.nan) for one in epochs],
            "trained": [math.nan if one.train_loss is None else one.train_loss for one in epochs],
            "after": [duration(one.wall_s) for one in epochs],
        }
    )

    def chart(title: str, columns: Sequence[str], **shared: Any) -> Any:
        tips = [(name, f"@{name}") for name in ("epoch", *columns, "after")]
        found: Any = figure(
            title=title, x_axis_label="epoch", height=300, sizing_mode="stretch_width", tooltips=tips,
            tools="xpan,xbox_zoom,xwheel_zoom,reset", active_drag="xbox_zoom", active_scroll="xwheel_zoom", **shared,
        )  # fmt: skip
        found.y_range.only_visible = True
        return found

    above = chart(measure, ("mean", "low", "high"))
    above.varea("epoch", "low", "high", source=source, fill_color=_BLUE, fill_alpha=0.25)
    above.line("epoch", "mean", source=source, color=_BLUE, line_width=2)
    below = chart("loss", ("loss", "trained"), x_range=above.x_range)
    below.line("epoch", "loss", source=source, color=_BLUE, line_width=2, legend_label="in validation")
    below.line("epoch", "trained", source=source, color=_ORANGE, line_dash="dashed", legend_label="in training")
    return json.dumps(json_item(column(above, below, sizing_mode="stretch_width"), theme=Theme(json={"attrs": _THEME})))
