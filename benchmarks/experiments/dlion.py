"""DLion's ideas in our loop: equal-time subtasks and uploads that fit the link, alone and together."""

from benchmarks.experiments.experiment import Experiment, Timed
from benchmarks.experiments.problems import Problem
from benchmarks.experiments.settings import PAPER
from benchmarks.experiments.timed_table import DEFAULT, SERIAL

_PROBLEMS = {
    "dense": Problem("digits", "", "wide_dense", rate=None),
    "convolutional": Problem("gratings", "", "wide_cnn", normalise="standardise", rate=None),
}
_EPOCHS = {"convolutional": (32,)}
"""Those of a problem that learns little in the experiment's own."""
_HOSTS = (
    "clients=10",
    "slots=1",
    "speed_ratio=8",
    "link_mb_per_s=2",
    "link_ratio=100",
    "lost_uploads=0.1",
    "timeout_s=1e5",
)
"""A lost upload, and not a lost training: what its client keeps of it must not count beside the subtask made again."""
_SUBTASK_S = {"links bind": 0.1, "links do not bind": 60.0}
"""Mean training time of a subtask, whose files take 0.04 to 4 s by float32 each way."""
_PASSES = 2
"""Over a shard in one subtask."""
_LONGER = {"links bind": 3, "links do not bind": 1}
"""A subtask that ends by time has so many times the passes of the others, at the most: where links cost nothing a fast
host begins a second shard instead (docs/decisions/106).
"""
_DOWN = {"links bind": "int8", "links do not bind": "float16"}
"""Downloads of all ideas together."""
_FITS = (
    "transport={{down: {}, up: {{name: top_k, {}}}, compress: true, feedback: true, moment_block: 32, "
    "upload_share: 0.2}}"
)
_TWO_BITS = "share: 0.1, two_bits: true"


def _ways(links: str) -> dict[str, tuple[str, ...]]:
    equal = (f"training.local_epochs={_LONGER[links] * _PASSES}", f"training.target_s={_SUBTASK_S[links]:g}")
    return {
        SERIAL: (),
        "the paper's": PAPER,
        "plain VC-ASGD": ("update={rule: vc_asgd, alpha: 0.5}",),
        DEFAULT: (),
        "equal time": equal,
        "uploads that fit": (_FITS.format("int8", "share: 0.05"),),
        "the same in two bits": (_FITS.format("int8", _TWO_BITS),),
        "together": (*equal, _FITS.format(_DOWN[links], _TWO_BITS)),
    }


def _whole_s(links: str, settings: tuple[str, ...]) -> float:
    """The time of all passes of a subtask."""
    return _SUBTASK_S[links] * (_LONGER[links] if any("target_s" in setting for setting in settings) else 1)


EXPERIMENT = Experiment(
    title="Hosts of different speed behind different links",
    about=(
        "Ten hosts, speeds 1 to 8, links 0.2 to 20 MB/s each way, one upload in ten lost; 16 epochs of two passes, 32 "
        "of images. *Less 1 point* is the virtual time until the accuracy on the test set is that of serial training "
        "at its end, less one point: the median over the seeds, each at the end of an epoch; in brackets, how many "
        "times sooner than today's default. Subtasks that end by time make up to six passes where links bind and two "
        "where they do not; there *together* has `float16` down "
        "([decision 106](../decisions/106-a-subtask-by-time-has-its-own-rate.md)). Bytes are those of a subtask; links "
        "from the slowest three to the fastest three."
    ),
    variants=tuple(
        Timed(
            f"{name}: {kind}, {links}",
            ("trust=own", f"training.local_epochs={_PASSES}", *settings),
            (*_HOSTS, f"subtask_s={_whole_s(links, settings)}", f"loss_report_s={5 * subtask_s}"),
            serial=name == SERIAL,
            epochs=_EPOCHS.get(kind, ()),
            problem=problem,
            kind=kind,
            links=links,
            way=name,
        )
        for links, subtask_s in _SUBTASK_S.items()
        for kind, problem in _PROBLEMS.items()
        for name, settings in _ways(links).items()
        if name != SERIAL or links == "links bind"  # it has no links
    ),
    epochs=(16,),
)
