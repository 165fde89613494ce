"""The section `training` of a job file."""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import ValidationInfo, field_validator

from vcdl.course import STEADY, UNSCALED, RateCourse, RateScaling, RateShape
from vcdl.job import values as kinds
from vcdl.job.section import SECTION_AS_YAML, Section, plain_or_section
from vcdl.workunit import Moments, Named

_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Named = Annotated[Named, kinds.NAMED, kinds.NAMED_AS_YAML]
_Rate = kinds.above_zero(also="{peak: …}")


class LearningRateSettings(Section):
    """`learning_rate: {peak: …}`: the rate over the whole job, told to each subtask by its place in it."""

    peak: _AboveZero
    schedule: Annotated[RateShape, kinds.one_of(RateShape)] = "constant"
    """After the warm-up."""
    warm_up: Annotated[float, kinds.fraction(zero=True, one=False)] = 0.0
    """Share of the job's subtasks."""
    floor: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """Of the peak, at the job's end."""
    times_clients: _Count = 1
    """Multiplied with the number of subtasks that are being trained, up to this one: linear scaling."""
    times_short: Annotated[float, kinds.at_least(1.0)] = 1.0
    """Multiplied with how much shorter than a long one the job is, counted in steps one after another, up to this."""

    @field_validator("floor")
    @classmethod
    def _is_used(cls, floor: float, info: ValidationInfo) -> float:
        if floor and info.data.get("schedule") == "constant":
            raise ValueError("is used with `schedule: linear` or `cosine` only; remove it, or set the schedule")
        return floor


class TrainingSettings(Section):
    """What a client does with a shard."""

    optimizer: _Named = Named("adam")
    moments: Annotated[Moments, kinds.one_of(Moments)] = "auto"
    """Of the optimizer, that travel with the weights: a subtask goes on with them instead of beginning with none."""
    learning_rate: Annotated[
        float | LearningRateSettings, plain_or_section(_Rate, LearningRateSettings), SECTION_AS_YAML
    ] = LearningRateSettings(peak=0.002, schedule="linear", floor=0.02, times_short=3.0)
    batch_size: _Count = 16
    local_epochs: _Count = 1
    loss: _Named = Named("sparse_categorical_crossentropy")
    metrics: tuple[_Named, ...] = (Named("accuracy"),)

    @field_validator("optimizer")
    @classmethod
    def _leaves_the_rate(cls, optimizer: Named) -> Named:
        return kinds.refuse_argument(optimizer, "learning_rate", "belongs into training > learning_rate; move it there")

    @property
    def peak_rate(self) -> float:
        """The highest learning rate of the job."""
        rate = self.learning_rate
        return rate.peak if isinstance(rate, LearningRateSettings) else rate

    @property
    def rate_course(self) -> RateCourse:
        """What part of it a subtask gets, by its place in the job."""
        rate = self.learning_rate
        if isinstance(rate, LearningRateSettings):
            return RateCourse(rate.schedule, rate.warm_up, rate.floor)
        return STEADY

    def rate_scaling(self, shard_samples: Sequence[int], epochs: int) -> RateScaling:
        """How it grows with the clients, in a job with such shards."""
        rate = self.learning_rate
        if not isinstance(rate, LearningRateSettings):
            return UNSCALED
        steps_an_epoch = sum(math.ceil(samples / self.batch_size) for samples in shard_samples) * self.local_epochs
        return RateScaling(rate.times_clients, rate.times_short, epochs * steps_an_epoch)
