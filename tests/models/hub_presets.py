"""Presets of KerasHub, small and with drawn weights: folders as `save_to_preset` writes them for published models."""

from pathlib import Path

WORDS = ("good", "great", "bad", "awful", "the", "film", "was", "a", "play")
LENGTH = 8


def bert_preset(folder: Path, classes: int = 2) -> Path:
    """A classifier of texts with a WordPiece vocabulary."""
    import keras
    from keras_hub import models

    keras.utils.set_random_seed(1)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = models.BertTokenizer(vocabulary=vocabulary, lowercase=True)
    backbone = models.BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=LENGTH,
    )
    packer = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=LENGTH)
    models.BertTextClassifier(backbone, num_classes=classes, preprocessor=packer).save_to_preset(str(folder))
    return folder


def gpt2_preset(folder: Path) -> Path:
    """A language model with a BPE vocabulary of letters."""
    import keras
    from keras_hub import models

    keras.utils.set_random_seed(1)
    letters = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "<|endoftext|>"]
    tokenizer = models.GPT2Tokenizer(vocabulary={letter: at for at, letter in enumerate(letters)}, merges=[])
    backbone = models.GPT2Backbone(
        vocabulary_size=len(letters),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=LENGTH,
    )
    packer = models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=LENGTH)
    models.GPT2CausalLM(backbone, preprocessor=packer).save_to_preset(str(folder))
    return folder


def vit_preset(folder: Path) -> Path:
    """A classifier of pictures of 16 × 16, which its converter scales by channel."""
    import keras
    from keras_hub import layers, models

    keras.utils.set_random_seed(1)
    backbone = models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=8, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=16
    )
    converter = layers.ViTImageConverter(image_size=(16, 16), scale=[0.01, 0.02, 0.03], offset=[-1.0, -1.5, -2.0])
    packer = models.ViTImageClassifierPreprocessor(converter)
    models.ViTImageClassifier(backbone, num_classes=3, preprocessor=packer).save_to_preset(str(folder))
    return folder
