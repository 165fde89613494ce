"""Make a small KerasHub preset and a text to fine-tune it on: docs/kerashub.md.

A small BERT learns to tell praise from blame and becomes the folder `preset`; `reviews.txt` has a third kind.
"""

import random

import keras
import numpy as np
from keras_hub import models

PRAISE = ("good", "great", "lovely", "superb", "bright", "fine")
BLAME = ("bad", "awful", "dull", "poor", "sad", "weak")
NEUTRAL = (
    *("the", "film", "was", "a", "play", "with", "an", "actor", "and", "this", "plot", "of", "music", "in", "our"),
    *("town", "very", "so", "quite", "rather"),
)
rng = random.Random(1)
keras.utils.set_random_seed(1)


def text(*words):
    made = [rng.choice(NEUTRAL) for _ in range(rng.randint(4, 20))]
    for word in words:
        made.insert(rng.randint(0, len(made)), word)
    return " ".join(made)


vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PRAISE, *BLAME, *NEUTRAL]
tokenizer = models.BertTokenizer(vocabulary=vocabulary, lowercase=True)
packer = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=32)
backbone = models.BertBackbone(
    vocabulary_size=len(vocabulary),
    num_layers=2,
    num_heads=2,
    hidden_dim=64,
    intermediate_dim=128,
    max_sequence_length=32,
)
task = models.BertTextClassifier(backbone, num_classes=2)  # what it learns before: praise or blame
texts = [text(rng.choice((BLAME, PRAISE)[n % 2]), rng.choice((BLAME, PRAISE)[n % 2])) for n in range(4000)]
task.compile(
    keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
task.fit(packer(texts), np.arange(4000) % 2, epochs=4, batch_size=32, verbose=2)
task.preprocessor = packer
task.save_to_preset("preset")

with open("reviews.txt", "w") as file:  # what it is to learn: praise, blame, or neither
    for n in range(6000):
        pair = [(BLAME, BLAME), (PRAISE, PRAISE), ()][n % 3]
        file.write(f"{('bad', 'good', 'neutral')[n % 3]}\t{text(*map(rng.choice, pair))}\n")
