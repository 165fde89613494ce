"""The section `training` of a job file."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import PlainSerializer, PlainValidator, ValidationInfo, field_validator

from vcdl.client.optimizers import facts_of
from vcdl.job.class_weight import ClassWeight, class_weight_as_yaml, read_class_weight
from vcdl.job.keras_keys import KERAS_KEYS
from vcdl.job.lr_schedule import MOST_BOOST, STEADY, RateShape, SubtaskRate
from vcdl.job.named import NAMED, NAMED_AS_YAML, refuse_argument
from vcdl.wire.task import MASKABLE_LOSS, MASKED
from vcdl.wire.workunit import Named, Normalisation, SharedOptimizerState, Training
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.reading import Problem, ProblemsError
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, plain_or_section

ACCUMULATION = "gradient_accumulation_steps"
"""Argument of every Keras optimizer for gradient accumulation."""
# The limit is far above any job, so that only a typing error is refused.
MOST_EPOCHS = 1_000_000
Precision = Literal["float32", "mixed_bfloat16"]

_Count = Annotated[int, kinds.whole(1)]
_AboveZero = Annotated[float, kinds.above_zero()]
_Named = Annotated[Named, NAMED, NAMED_AS_YAML]
_ClassWeight = Annotated[ClassWeight, PlainValidator(read_class_weight), PlainSerializer(class_weight_as_yaml)]
_Rate = kinds.above_zero(also="{peak: …}")


def _precision(raw: Any) -> Any:
    if raw in ("mixed_float16", "float16"):
        raise ValueError(f"{raw} needs loss scaling, which VCDL does not support; use mixed_bfloat16, which needs none")
    # Weights in bfloat16 have eight significant bits, which would lose the small changes that uploads consist of.
    if raw == "bfloat16":
        raise ValueError("bfloat16 would round the weights too; use mixed_bfloat16, which keeps them in float32")
    if not isinstance(raw, str) or raw not in get_args(Precision):
        raise kinds.expected_one_of(get_args(Precision), raw)
    return raw


class LearningRateSettings(Section):
    """`learning_rate: {peak: …}`: the rate over the whole job; a subtask gets its rate by its place in the job."""

    peak: _AboveZero
    schedule: Annotated[RateShape, kinds.one_of(RateShape)] = "constant"
    """The course of the rate from the peak, after the warm-up."""
    warmup: Annotated[float, kinds.fraction(zero=True, one=False)] = 0.0
    """Fraction of the job's subtasks in which the rate rises to its peak."""
    end_factor: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """The rate at the job's end, as a fraction of the peak."""
    scale_with_clients: _Count = 1
    """The rate is multiplied by the number of active clients, up to this number: linear scaling."""
    short_job_boost: Annotated[float | Literal["auto"], kinds.at_least(1.0, "auto")] = 1.0
    """The highest factor on a short job's rate (SubtaskRate). `auto`: a trial before the job chooses it."""

    @field_validator("end_factor")
    @classmethod
    def _is_used(cls, end_factor: float, info: ValidationInfo) -> float:
        if end_factor and info.data.get("schedule") == "constant":
            raise ValueError("has no effect with `schedule: constant`; remove it, or set another schedule")
        return end_factor


def usual_rate(optimizer: Named) -> LearningRateSettings:
    """Return the learning rate for a job that sets none: the optimizer's usual peak, falling (docs/decisions/144)."""
    return LearningRateSettings(
        peak=facts_of(optimizer.name).peak, schedule="quadratic", end_factor=0.02, short_job_boost="auto"
    )


class TrainingSettings(Section):
    """How a client trains its shard."""

    foreign_keys = KERAS_KEYS

    optimizer: _Named = Named("adam")
    share_optimizer_state: Annotated[SharedOptimizerState, kinds.one_of(SharedOptimizerState)] = "auto"
    """The part of the optimizer's state that is sent with the weights, so that a subtask starts with some state."""
    learning_rate: Annotated[
        float | LearningRateSettings, plain_or_section(_Rate, LearningRateSettings), SECTION_AS_YAML
    ] = usual_rate(Named("adam"))
    batch_size: _Count = 16
    local_epochs: Annotated[int, kinds.whole(1, MOST_EPOCHS)] = 1
    target_s: _AboveZero | None = None
    """Seconds of training after which a client ends a subtask, however much is trained; None: all of it is trained."""
    loss: _Named = Named("sparse_categorical_crossentropy")
    metrics: tuple[_Named, ...] = (Named("accuracy"),)
    precision: Annotated[Precision, PlainValidator(_precision)] = "float32"
    """The number type that layers compute with; weights are float32 in any case."""
    class_weight: _ClassWeight | None = None
    """The weight of a sample by its class."""

    @field_validator("optimizer")
    @classmethod
    def _leaves_the_rate(cls, optimizer: Named) -> Named:
        return refuse_argument(optimizer, "learning_rate", "belongs in training > learning_rate; move it there")

    def masking(self) -> Self:
        """Return a copy whose loss ignores masked labels (Keras' argument `ignore_class`).

        Raises:
            ProblemsError: The loss has no such argument, or the job file gives it another value.
        """
        if self.loss.name != MASKABLE_LOSS or self.loss.arguments.get("ignore_class", MASKED) != MASKED:
            message = f"data > mask works with {MASKABLE_LOSS}, and sets its ignore_class itself; remove one of the two"
            raise ProblemsError([Problem(("loss",), message)])
        loss = Named(self.loss.name, {**self.loss.arguments, "ignore_class": MASKED})
        return self.model_copy(update={"loss": loss})

    @property
    def batches_a_step(self) -> int:
        """Number of batches whose gradients the optimizer accumulates for a step."""
        batches = self.optimizer.arguments.get(ACCUMULATION)
        # A wrong value counts as 1 here, because Keras refuses it later with its own message.
        return batches if isinstance(batches, int) and batches > 0 else 1

    @property
    def peak_rate(self) -> float:
        """The highest learning rate of the job."""
        rate = self.learning_rate
        return rate.peak if isinstance(rate, LearningRateSettings) else rate

    @property
    def tries_rates(self) -> bool:
        """Whether learning rates are tried before the job, to choose how far a short job's rate is raised."""
        rate = self.learning_rate
        return isinstance(rate, LearningRateSettings) and rate.short_job_boost == "auto"

    @property
    def passes(self) -> int:
        """Number of passes over its shard after which a subtask counts as whole: 1 if `target_s` ends it by time."""
        return self.local_epochs if self.target_s is None else 1

    @property
    def most_counted(self) -> int:
        """Factor from a subtask's trained fraction to the fraction that its upload counts for, which is capped at 1.

        It is 1 without `target_s`. With `target_s` it is `local_epochs`, so that one pass over the shard already counts
        in full.
        """
        return self.local_epochs // self.passes

    def steps(self, shard_samples: Sequence[int], epochs: int) -> int:
        """Return the number of optimizer steps in all subtasks of a job.

        Args:
            shard_samples: Number of samples of each shard.
            epochs: The job's epochs.
        """
        batches = sum(math.ceil(samples / self.batch_size) for samples in shard_samples) * self.passes
        return epochs * (batches // self.batches_a_step)

    def subtask_rate(self, shard_samples: Sequence[int], epochs: int, found_boost: float) -> SubtaskRate:
        """Return the learning-rate schedule of the job's subtasks.

        Args:
            shard_samples: Samples of each shard.
            epochs: The job's epochs.
            found_boost: The factor that a trial has chosen.
        """
        rate = self.learning_rate
        if not isinstance(rate, LearningRateSettings):
            return STEADY
        boost, most = (found_boost, MOST_BOOST) if rate.short_job_boost == "auto" else (rate.short_job_boost, 1.0)
        course, steps = (rate.schedule, rate.warmup, rate.end_factor), self.steps(shard_samples, epochs)
        return SubtaskRate(*course, rate.scale_with_clients, boost, steps, most)

    def to_wire(self, normalisation: Normalisation, rate: float = 1.0) -> Training:
        """Return the settings as clients receive them, with `rate` times the peak learning rate."""
        # The fields are copied by name, so that a new field of Training is sent as soon as this section has it.
        own = {name: getattr(self, name) for name in Training.__dataclass_fields__ if name in type(self).model_fields}
        return Training(**{**own, "learning_rate": self.peak_rate * rate, "normalisation": normalisation})
