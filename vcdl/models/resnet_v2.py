"""ResNet with pre-activation and bottleneck blocks, as in Keras' examples.

Source: He, Zhang, Ren, Sun 2016, arXiv 1603.05027. It has three stages of n = (depth − 2) / 9 blocks. At depth 164 on
CIFAR-10 it has the 552 layers and 4 972 746 parameters of Atre, Jha, Rao 2021.
"""

from typing import Any

from vcdl.errors import ModelError
from vcdl.models.ending import images, output_layer

_FILTERS = 16
"""Filters of the first stage, as in the paper (He et al. 2016)."""
_STAGES = 3
"""Stages, as in the paper (He et al. 2016): each halves the picture."""
_L2 = 1e-4
"""Weight decay, as in the paper (He et al. 2016)."""


def resnet_v2(input_shape: tuple[int, ...], outputs: int, task: str, depth: int = 20) -> Any:
    """Build a ResNet for images, of depth 9·n + 2: 11, 20, 29, …, 164.

    Raises:
        ModelError: The depth is another one, or the samples are no images.
    """
    import keras
    from keras import layers

    blocks, rest = divmod(depth - 2, 9)
    if rest or blocks < 1:
        raise ModelError(f"resnet_v2 has no depth {depth}: it is 9·n + 2, such as 11, 20, 29, 56, 110 or 164")
    inputs = keras.Input(input_shape, name="input")
    x = _convolution(images(inputs, "resnet_v2"), "stem", _FILTERS, size=3)
    x = _activation(x, "stem")
    narrow = _FILTERS
    for stage in range(_STAGES):
        wide = narrow * 4 if stage == 0 else narrow * 2
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _block(x, f"s{stage}b{block}", narrow, wide, stride, widens=block == 0)
        narrow = wide
    x = _activation(x, "end")
    x = layers.AveragePooling2D(x.shape[1:3], name="pool")(x)
    x = layers.Flatten(name="flatten")(x)
    return keras.Model(inputs, output_layer(outputs, task, "he_normal")(x), name=f"resnet_v2_{depth}")


def _block(x: Any, name: str, narrow: int, wide: int, stride: int, widens: bool) -> Any:
    """Add convolutions of 1 × 1, 3 × 3 and 1 × 1 parallel to a shortcut.

    The shortcut is a 1 × 1 convolution where the shape changes.
    """
    from keras import layers

    y = _convolution(_activation(x, f"{name}_1"), f"{name}_1", narrow, size=1, stride=stride)
    y = _convolution(_activation(y, f"{name}_2"), f"{name}_2", narrow, size=3)
    y = _convolution(_activation(y, f"{name}_3"), f"{name}_3", wide, size=1)
    shortcut = _convolution(x, f"{name}_shortcut", wide, size=1, stride=stride) if widens else x
    return layers.Add(name=f"{name}_add")([shortcut, y])


def _activation(x: Any, name: str) -> Any:
    from keras import layers

    return layers.Activation("relu", name=f"{name}_relu")(layers.BatchNormalization(name=f"{name}_bn")(x))


def _convolution(x: Any, name: str, filters: int, size: int, stride: int = 1) -> Any:
    from keras import layers, regularizers

    return layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding="same",
        kernel_initializer="he_normal",
        kernel_regularizer=regularizers.L2(_L2),
        name=f"{name}_conv",
    )(x)
