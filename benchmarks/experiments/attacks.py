"""The uploads of hostile clients, from what they know. Pure: no file is read or written here.

B are the weights that a client started from, C those that it trained, s the attack's scale, L the usual length of an
honest step, H the last honest steps of the others. What the client uploads in place of C:

sign_flip         B − s·(C − B)                       its step backwards, s times as long
scaled            B + s·(C − B)                       its step, s times as long
noise             B + s·‖C − B‖/√n · N(0, 1)          a random step, s times as long
constant          s                                   the same number everywhere
label_flip        B + s·(C − B)                       trained on wrong labels (benchmarks.experiments.poisoned_data)
targeted          B + s·(C − B)                       trained with one class called another (the same module)
backdoor          B + s·(C − B)                       trained on samples with a pattern (the same module)
alie              B + mean(H) − s·std(H)              "a little is enough": within the spread of honest steps
inner_product     B − s·mean(H)                       the honest step of all, backwards
drift             B + s·L·u                           u for the whole job: against the first honest steps
colluding         B + s·L·u                           u for an epoch: against the last honest steps; the same of all
statistics        C, every moving variance −s         the batch statistics alone are false
moments           C, every moment of the optimizer s  the optimizer's shared state alone is false
free_rider        B                                   as downloaded
free_rider_noise  B + s·L/√n · N(0, 1)                as downloaded, with noise in place of a step
part_trained      C                                   trained on the part s of its shard, as if on all (the same)
little_trained    C                                   trained on the part s of its subtask, and says so (hostile_run)
other_backend     B + s·(C − B)                       trained on wrong labels, by another backend, as it says (the same)
replay            the client's first C                an old upload under the header of a new one
decoy             B − s·L·u, largest variable far     each against H, but for the largest: far along its own step
garbage           random bytes                        no weights file

A step moves the weights that gradients train. Batch statistics and moments go with it as they were honestly trained
(those of a free rider: as downloaded), since false ones would only give the step away.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.experiments.hostile_fleet import Hostile, HostileFleet
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.workunit import WorkunitName

_NOISE = 3
"""A stream of random numbers, beside those of vcdl.simulate.clients."""
_GARBAGE_BYTES = 2000
_DECOY_LENGTHS = 2.0
"""Usual lengths of a whole decoy: one that is longer goes too far, and shows no effect of training."""
_KNOWN = 10
"""Honest steps that the hostile clients know: the first ones, and the last ones."""


class HostileClients:
    """The hostile clients of a run, who know the honest uploads so far and what they agreed on."""

    def __init__(self, fleet: HostileFleet, layout: Layout) -> None:
        self._fleet = fleet
        self._layout = layout
        self._trained = np.ones(layout.size, bool)
        """Whether a gradient trains each number."""
        for begin, end in layout.statistics:
            self._trained[begin:end] = False
        sizes = [variable.size for variable in layout.variables if variable.is_trained]
        ends = np.cumsum(sizes).tolist()
        self._variables = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        """The place of each variable in a step."""
        self._first: list[Vector] = []
        self._last: deque[Vector] = deque(maxlen=_KNOWN)
        self._agreed: dict[int, Vector] = {}
        """The step that the colluding clients agreed on for an epoch."""
        self._old: dict[int, Vector] = {}
        """The first upload of each client that replays it."""

    def saw(self, base: Vector, honest: Vector) -> None:
        """Take note of an honest upload; `base` and `honest` have shape (n,)."""
        step = (honest - base)[self._trained]
        self._last.append(step)
        if len(self._first) < _KNOWN:
            self._first.append(step)

    def upload(self, hostile: Hostile, name: WorkunitName, base: Vector, trained: Vector) -> Vector:
        """The upload of a hostile client that trained from `base` to `trained`; all have shape (n,)."""
        match hostile.attack:
            case "part_trained" | "little_trained" | "hurried":
                return trained
            case "free_rider":
                return base.copy()
            case "replay":
                return self._old.setdefault(hostile.client, trained).copy()
            case "statistics":
                return self._with(trained, -hostile.scale, _variances(self._layout))
            case "moments":
                return self._with(trained, hostile.scale, _moments(self._layout))
            case "constant":
                return np.where(self._trained, np.float32(hostile.scale), trained)
        upload = (base if hostile.attack == "free_rider_noise" else trained).copy()
        upload[self._trained] = base[self._trained] + self._step(hostile, name, (trained - base)[self._trained])
        return upload

    def garbage(self, hostile: Hostile, name: WorkunitName) -> bytes:
        """An upload that is no weights file."""
        return self._rng(hostile, name).bytes(_GARBAGE_BYTES)

    def _rng(self, hostile: Hostile, name: WorkunitName) -> np.random.Generator:
        seed = [self._fleet.seed, _NOISE, hostile.client, name.epoch, name.shard, name.attempt]
        return np.random.default_rng(seed)

    def _decoy(self, scale: float, own: Vector, steps: Sequence[Vector]) -> Vector:
        """Every variable backwards, but for the largest, which makes the whole step look honest."""
        step, mean = np.empty_like(steps[0]), _mean(steps)
        for place in self._variables:
            step[place] = _against([mean[place]], scale * _usual([one[place] for one in steps]))
        largest = max(self._variables, key=lambda place: place.stop - place.start)
        step[largest] = 0.0
        far = np.sqrt(max(0.0, (_DECOY_LENGTHS * _usual(steps)) ** 2 - _length(step) ** 2))
        step[largest] = -_against([own[largest]], far)
        return step

    def _tolerated(self, scale: float, own: Vector, steps: Sequence[Vector]) -> Vector:
        """Its step, but for the smallest variables, backwards as far as re-execution takes it for rounding."""
        step, mean = own.copy(), _mean(steps)
        left = (scale * _length(own)) ** 2
        usual = [_usual([one[place] for one in steps]) for place in self._variables]
        for number in np.argsort(usual):
            place = self._variables[number]
            wished = _against([mean[place]], 1.45 * usual[number])
            moved = wished - own[place]
            apart = float(np.sum(np.square(moved, dtype=np.float64)))
            part = min(1.0, max(0.0, left / apart) ** 0.5) if apart > 0 else 0.0
            step[place] += np.float32(part) * moved
            left -= part**2 * apart
        return step

    def _step(self, hostile: Hostile, name: WorkunitName, own: Vector) -> Vector:
        """The step of an attack that moves the trained weights; `own`: the client's step after training."""
        scale, last = np.float32(hostile.scale), self._last or [own]
        match hostile.attack:
            case "sign_flip":
                return -scale * own
            case "tolerated":
                return self._tolerated(hostile.scale, own, last)
            case "decoy":
                return self._decoy(hostile.scale, own, last)
            case "scaled" | "label_flip" | "targeted" | "backdoor" | "other_backend":
                return scale * own
            case "alie":
                return _mean(last) - scale * _spread(last)
            case "inner_product":
                return -scale * _mean(last)
            case "drift":
                return scale * _against(self._first or [own], _usual(last))
            case "colluding":
                return scale * self._agreed.setdefault(name.epoch, _against(last, _usual(last)))
            case "noise":
                length = _length(own)
            case _:
                length = _usual(last)
        random = self._rng(hostile, name).standard_normal(own.size, np.float32)
        return np.float32(hostile.scale * length / np.sqrt(own.size)) * random

    def _with(self, trained: Vector, value: float, chosen: npt.NDArray[np.bool_]) -> Vector:
        return np.where(chosen, np.float32(value), trained)


def _against(steps: Sequence[Vector], length: float) -> Vector:
    """The step of this length against the mean of others."""
    mean = _mean(steps)
    return mean * np.float32(-length / (_length(mean) or 1.0))


def _mean(steps: Sequence[Vector]) -> Vector:
    mean: Vector = np.stack(steps).mean(axis=0)
    return mean


def _spread(steps: Sequence[Vector]) -> Vector:
    spread: Vector = np.stack(steps).std(axis=0)
    return spread


def _usual(steps: Sequence[Vector]) -> float:
    """The median length of steps."""
    return float(np.median([_length(step) for step in steps]))


def _length(step: Vector) -> float:
    return float(np.sqrt(np.sum(np.square(step, dtype=np.float64))))


def _variances(layout: Layout) -> npt.NDArray[np.bool_]:
    """The places of the moving variances of batch normalisation."""
    return _places(layout, [variable.path.endswith("moving_variance") for variable in layout.variables])


def _moments(layout: Layout) -> npt.NDArray[np.bool_]:
    """The places of the optimizer's moments; its count of steps is none."""
    return _places(layout, [variable.path.startswith("/") and bool(variable.shape) for variable in layout.variables])


def _places(layout: Layout, chosen: Sequence[bool]) -> npt.NDArray[np.bool_]:
    places = np.zeros(layout.size, bool)
    for variable, is_chosen in zip(layout.variables, chosen, strict=True):
        places[variable.offset : variable.offset + variable.size] = is_chosen
    return places
