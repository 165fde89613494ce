"""The section `model` of a job file."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from vcdl.job.named import NAMED_AS_YAML, parse_named
from vcdl.wire.workunit import Named
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, exactly_one, read_section, section_or_nothing

FrozenType = Literal["float32", "int8"]
_Count = Annotated[int, kinds.whole(1)]
_File = Annotated[Path, kinds.existing_file()]
_Pattern = Annotated[str, kinds.text(r".+", "a pattern of layers, such as dense_*")]


class MlpArguments(Section):
    """`builtin: {name: mlp, …}`: dense ReLU layers over the flattened input."""

    units: tuple[_Count, ...] = (128,)
    dropout: Annotated[float, kinds.fraction(zero=True, one=False)] = 0.0


class SmallCnnArguments(Section):
    """`builtin: small_cnn`, which has no arguments."""


class ResnetV2Arguments(Section):
    """`builtin: {name: resnet_v2, …}`: bottleneck blocks with pre-activation (He et al. 2016)."""

    depth: Annotated[int, kinds.whole(11)] = 20

    @field_validator("depth")
    @classmethod
    def _is_three_stages(cls, depth: int) -> int:
        # ResNet v2 has three stages of n blocks with three layers each, and two layers around them: 9·n + 2 layers.
        if depth % 9 != 2:
            near = max(11, round((depth - 2) / 9) * 9 + 2)
            raise ValueError(f"expected 9·n + 2 (11, 20, 29, …), got {depth}; the nearest is {near}")
        return depth


BUILTINS: dict[str, type[Section]] = {
    "mlp": MlpArguments,
    "small_cnn": SmallCnnArguments,
    "resnet_v2": ResnetV2Arguments,
}


class LoraSettings(Section):
    """`lora: {…}`: train, in addition to frozen kernels, products of two small matrices."""

    rank: _Count = 8
    layers: tuple[_Pattern, ...] | None = None
    """Patterns of the layers that get such matrices; None: all layers that can."""


SOURCES = ("builtin", "keras_json", "keras", "hub", "python")
"""Keys that name a model: exactly one of them is given."""
WEIGHTS_ENDINGS = (".keras", ".weights.h5", ".npz")


class ModelSettings(Section):
    """The model: exactly one of SOURCES, or the model of another run."""

    builtin: Annotated[Named | None, NAMED_AS_YAML] = None
    """A built-in model with all its arguments, including defaults."""
    keras_json: _File | None = None
    keras: _File | None = None
    """A file of `model.save()`: the model with its weights."""
    hub: Annotated[Path, kinds.existing_folder()] | None = None
    """A folder that KerasHub's `save_to_preset` wrote: a pretrained model with its weights."""
    python: Annotated[str, kinds.function_path()] | None = None
    python_folder: Path | None = Field(default=None, validate_default=True)
    """The folder in which the function's module is searched first; None in the job file: that file's own folder."""
    code: Annotated[Path, kinds.existing_folder()] | None = None
    """The folder whose Python files are sent with the model, for machines of one's own; None: no code is sent."""
    weights: _File | None = None
    """The file of the weights to start from; None: fresh ones."""
    train: tuple[_Pattern, ...] | None = None
    """Patterns of the layers that are trained, all others are frozen; None: as set in the model, with `lora` none."""
    frozen: Annotated[FrozenType, kinds.one_of(FrozenType)] = "float32"
    """The number type of kernels that no training changes, in files and in a client's memory."""
    lora: Annotated[LoraSettings | None, section_or_nothing(LoraSettings), SECTION_AS_YAML] = None
    from_run: Annotated[Path, kinds.existing_folder()] | None = Field(default=None, alias="from")
    """The folder of a finished run whose weights the job starts from."""

    @property
    def is_named(self) -> bool:
        """Whether the job file gives a model by one of SOURCES; False: the model is that of another run."""
        return any(getattr(self, key) is not None for key in SOURCES)

    @property
    def is_limited(self) -> bool:
        """Whether `train`, `lora` or `frozen` is set, so that not all weights of the model are trained."""
        return self.train is not None or self.lora is not None or self.frozen != "float32"

    @property
    def origin(self) -> str:
        """For messages: the function `module:name`, or the folder of the preset or run that the model comes from."""
        return self.python or str(self.hub or self.from_run)

    @field_validator("builtin", mode="plain")
    @classmethod
    def _is_known(cls, raw: Any) -> Named | None:
        if raw is None:
            return None
        value = parse_named(raw)
        if value.name not in BUILTINS:
            raise kinds.expected_one_of(tuple(BUILTINS), value.name)
        arguments = read_section(BUILTINS[value.name], value.arguments)
        # The defaults of all arguments are written out, because a run's own job file must mean the same under a later
        # version with other defaults.
        return Named(value.name, arguments.model_dump(mode="json"))

    @field_validator("python_folder", mode="plain")
    @classmethod
    def _goes_with_python(cls, raw: Any, info: ValidationInfo) -> Path | None:
        if info.data.get("python") is not None:
            return kinds.folder(raw, info.context)
        # Pydantic leaves a refused field out of `info.data`. If `python` was refused, this message would be about the
        # wrong key.
        if raw is not None and "python" in info.data:
            raise ValueError("is used with `python` only; remove it")
        return None

    @field_validator("keras")
    @classmethod
    def _is_keras_file(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix != ".keras":
            raise ValueError(f"expected a .keras file, as model.save() writes it, got {path.name}")
        return path

    @field_validator("weights")
    @classmethod
    def _is_weights_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and not path.name.endswith(WEIGHTS_ENDINGS):
            raise ValueError(f"expected a file that ends in {', '.join(WEIGHTS_ENDINGS)}, got {path.name}")
        if path is not None and info.data.get("keras") is not None:
            raise ValueError("the file of `keras` has weights of its own; remove one of the two")
        return path

    @field_validator("from_run")
    @classmethod
    def _has_no_other_weights(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        other = next((key for key in ("weights", "keras") if info.data.get(key) is not None), None)
        if path is not None and other is not None:
            raise ValueError(f"the weights come from that run, and from `{other}`; remove one of the two")
        return path

    @field_validator("train")
    @classmethod
    def _names_something(cls, train: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if train == ():
            raise ValueError("expected at least one pattern of layers; without the key all layers are trained")
        return train

    @model_validator(mode="after")
    def _is_one(self) -> "ModelSettings":
        if self.from_run is None or self.is_named:
            exactly_one(self, *SOURCES)
        return self
