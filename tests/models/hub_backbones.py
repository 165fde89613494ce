"""KerasHub's backbones, small and with drawn weights, and what becomes of each: docs/kerashub.md has the same table."""

from collections.abc import Callable
from typing import Any

_TEXT = {
    "vocabulary_size": 100,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": 16,
}
_GROUPED = {
    "vocabulary_size": 100,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
_PATCHES = {"patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "image_shape": (32, 32, 3)}
LENGTH, IMAGE = 12, (32, 32, 3)


def _without(keys: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key not in names}


def _electra() -> dict[str, Any]:
    return {**_without(_TEXT, "vocabulary_size"), "vocab_size": 100, "embedding_dim": 16}


ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "Albert": lambda: {**_TEXT, "embedding_dim": 16},
    "Bart": lambda: _TEXT,
    "Bert": lambda: _TEXT,
    "Bloom": lambda: _without(_TEXT, "max_sequence_length"),
    "DINOV2": lambda: {**_PATCHES, "intermediate_dim": 32},
    "DINOV3": lambda: {**_PATCHES, "intermediate_dim": 32},
    "DebertaV3": lambda: {**_TEXT, "bucket_size": 8},
    "DeiT": lambda: {**_PATCHES, "intermediate_dim": 32},
    "DenseNet": lambda: {"stackwise_num_repeats": [2, 2], "image_shape": IMAGE},
    "DistilBert": lambda: _TEXT,
    "ESM": lambda: _TEXT,
    "EfficientNet": lambda: {
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "stackwise_kernel_sizes": [3],
        "stackwise_num_repeats": [1],
        "stackwise_input_filters": [16],
        "stackwise_output_filters": [16],
        "stackwise_expansion_ratios": [1],
        "stackwise_strides": [1],
        "stackwise_squeeze_and_excite_ratios": [0.25],
        "stackwise_block_types": ["v1"],
        "image_shape": IMAGE,
    },
    "Electra": _electra,
    "FNet": lambda: _without(_TEXT, "num_heads"),
    "Falcon": lambda: {**_without(_TEXT, "num_heads", "max_sequence_length"), "num_attention_heads": 2},
    "GPT2": lambda: _TEXT,
    "GPTNeoX": lambda: _TEXT,
    "Gemma": lambda: {**_GROUPED, "head_dim": 8},
    "Gemma3": lambda: {**_GROUPED, "head_dim": 8, "image_size": 16, "vision_encoder": None},
    "GptOss": lambda: {**_GROUPED, "head_dim": 8, "num_experts": 2, "top_k": 1},
    "Llama": lambda: _GROUPED,
    "Llama3": lambda: _GROUPED,
    "MiT": lambda: {
        "layerwise_depths": [2, 2],
        "image_shape": IMAGE,
        "hidden_dims": [4, 8],
        "num_layers": 2,
        "layerwise_num_heads": [1, 2],
        "layerwise_sr_ratios": [2, 1],
        "max_drop_path_rate": 0.1,
        "layerwise_patch_sizes": [7, 3],
        "layerwise_strides": [4, 2],
    },
    "Mistral": lambda: {**_GROUPED, "sliding_window": 8},
    "Mixtral": lambda: {**_GROUPED, "num_experts": 2, "top_k": 1},
    "MobileNet": lambda: {
        "stackwise_expansion": [[16], [24]],
        "stackwise_num_blocks": [1, 1],
        "stackwise_num_filters": [[8], [16]],
        "stackwise_kernel_size": [[3], [3]],
        "stackwise_num_strides": [[1], [2]],
        "stackwise_se_ratio": [[0.25], [None]],
        "stackwise_activation": [["relu6"], ["hard_swish"]],
        "stackwise_padding": [[1], [1]],
        "output_num_filters": 16,
        "input_activation": "hard_swish",
        "output_activation": "hard_swish",
        "input_num_filters": 8,
        "depthwise_filters": 8,
        "depthwise_stride": 1,
        "depthwise_residual": True,
        "squeeze_and_excite": None,
        "last_layer_filter": 16,
        "image_shape": IMAGE,
    },
    "OPT": lambda: _TEXT,
    "Phi3": lambda: _GROUPED,
    "Qwen": lambda: _GROUPED,
    "Qwen3": lambda: {**_GROUPED, "head_dim": 8},
    "Qwen3Moe": lambda: {**_GROUPED, "head_dim": 8, "moe_intermediate_dim": 16, "num_experts": 2, "top_k": 1},
    "QwenMoe": lambda: {
        **_GROUPED,
        "moe_intermediate_dim": 16,
        "shared_expert_intermediate_dim": 16,
        "num_experts": 2,
        "top_k": 1,
    },
    "RWKV7": lambda: {
        "vocabulary_size": 100,
        "num_layers": 2,
        "hidden_size": 16,
        "head_size": 8,
        "intermediate_dim": 32,
        "gate_lora": 4,
        "mv_lora": 4,
        "aaa_lora": 4,
        "decay_lora": 4,
    },
    "ResNet": lambda: {
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [7],
        "stackwise_num_filters": [64, 128],
        "stackwise_num_blocks": [1, 1],
        "stackwise_num_strides": [1, 2],
        "block_type": "basic_block",
        "image_shape": IMAGE,
    },
    "Roberta": lambda: _TEXT,
    "RoformerV2": lambda: {**_without(_TEXT, "max_sequence_length"), "head_size": 8},
    "SmolLM3": lambda: {
        **_without(_GROUPED, "num_query_heads"),
        "num_attention_heads": 2,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_layer_enabled_list": [True, False],
        "layer_types": ["full_attention", "full_attention"],
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-6,
        "max_position_embeddings": 64,
        "rope_theta": 1000.0,
        "partial_rotary_factor": 1.0,
    },
    "SwinTransformer": lambda: {
        "image_shape": IMAGE,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [1, 2],
        "window_size": 4,
        "patch_size": 2,
    },
    "T5": lambda: _without(_TEXT, "max_sequence_length"),
    "VGG": lambda: {"stackwise_num_repeats": [1, 1], "stackwise_num_filters": [8, 16], "image_shape": IMAGE},
    "ViT": lambda: {**_PATCHES, "mlp_dim": 32},
    "ViTDet": lambda: {
        "hidden_size": 16,
        "num_layers": 2,
        "intermediate_dim": 32,
        "num_heads": 2,
        "global_attention_layer_indices": [1],
        "image_shape": IMAGE,
        "patch_size": 8,
        "num_output_channels": 8,
        "window_size": 2,
    },
    "Whisper": lambda: {
        **_without(_TEXT, "max_sequence_length"),
        "num_mels": 8,
        "max_encoder_sequence_length": 24,
        "max_decoder_sequence_length": 16,
    },
    "XLMRoberta": lambda: _TEXT,
    "XLNet": lambda: _without(_TEXT, "max_sequence_length"),
    "Xception": lambda: {
        "stackwise_conv_filters": [[8, 8], [16, 16]],
        "stackwise_pooling": [True, False],
        "image_shape": IMAGE,
    },
}
"""Arguments of `keras_hub.models.NAMEBackbone`, by NAME."""

REFUSED = {
    "Mixtral": "'mixtral_sparse_moe_block' computes something else in training",
    "Qwen3Moe": "'qwen3_sparse_moe_block' computes something else in training",
    "QwenMoe": "'qwen_sparse_moe_block' computes something else in training",
    "RWKV7": "'RWKV_TIME_MIX' computes something else in training",
    "RoformerV2": "'roformr_positional_embedding' cannot be made of Keras' own layers .*array slice",
    "ViTDet": "'windowed_transformer_encoder' cannot be made of Keras' own layers .*incompatible|broadcast",
    "XLNet": "XLNetBackbone .* does not predict the same",
}
"""Words of the error of those that are not taken, by NAME."""


def drawn(name: str) -> Any:
    """Build a backbone whose weights are all drawn: zeros in biases would hide a weight that is lost."""
    import keras
    import keras_hub
    import numpy as np

    keras.utils.set_random_seed(1)
    backbone = getattr(keras_hub.models, f"{name}Backbone")(**ARGUMENTS[name]())
    noise = np.random.default_rng(2)
    for weight in backbone.weights:
        if "float" in weight.dtype and "variance" not in weight.path:
            weight.assign(weight + noise.normal(0, 0.05, weight.shape))
    return backbone


def shapes_of(backbone: Any) -> dict[str, tuple[int, ...]]:
    """Return a fixed shape for each input of which KerasHub leaves it open."""
    shapes = {}
    for tensor in backbone.inputs:
        shape = tuple(tensor.shape[1:])
        if None in shape:
            shapes[str(tensor.name)] = IMAGE if len(shape) == 3 else tuple(LENGTH if n is None else n for n in shape)
    return shapes


def samples_for(model: Any, count: int) -> dict[str, Any]:
    """Draw samples by input; texts are padded to different lengths."""
    import numpy as np

    noise, samples = np.random.default_rng(3), {}
    for tensor in model.inputs:
        name, shape = str(tensor.name), (count, *tensor.shape[1:])
        if "float" in tensor.dtype:
            samples[name] = noise.random(shape).astype("float32")
        elif "mask" in name:
            lengths = noise.integers(3, shape[1] + 1, (count, 1))
            samples[name] = (np.arange(shape[1])[None] < lengths).astype("int32")
        else:
            samples[name] = noise.integers(0, 2 if name == "segment_ids" else 100, shape).astype("int32")
    return samples
