"""A variational autoencoder of digits: a subclassed model with steps of its own, and a layer that draws."""

import math

import keras
from keras import ops


class Sampling(keras.layers.Layer):
    """Draws from the normal distribution that the encoder has described."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, mean, log_variance):
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seeds)


class Vae(keras.Model):
    """Encoder, draw and decoder. It trains on reconstruction plus the divergence from a standard normal."""

    def __init__(self, shape, latent=4, **kwargs):
        super().__init__(**kwargs)
        self.shape, self.latent = tuple(shape), latent
        self.flat = keras.layers.Flatten()
        self.hidden = keras.layers.Dense(64, activation="relu")
        self.mean = keras.layers.Dense(latent)
        self.log_variance = keras.layers.Dense(latent, kernel_initializer="zeros")
        self.sampling = Sampling()
        self.decoder = keras.Sequential(
            [
                keras.Input((latent,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(math.prod(shape), activation="sigmoid"),
                keras.layers.Reshape(shape),
            ]
        )

    def get_config(self):
        return {**super().get_config(), "shape": self.shape, "latent": self.latent}

    def encode(self, x):
        hidden = self.hidden(self.flat(x))
        return self.mean(hidden), self.log_variance(hidden)

    def call(self, x):
        return self.decoder(self.sampling(*self.encode(x)))

    def losses_of(self, x):
        mean, log_variance = self.encode(x)
        rebuilt = self.decoder(self.sampling(mean, log_variance))
        unlike = ops.binary_crossentropy(self.flat(x), self.flat(rebuilt))
        reconstruction = ops.mean(ops.sum(unlike, axis=-1))
        divergence = -0.5 * ops.mean(ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=-1))
        return {"loss": reconstruction + divergence, "reconstruction": reconstruction, "divergence": divergence}

    def train_step(self, data):
        import tensorflow as tf

        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            losses = self.losses_of(x)
        gradients = tape.gradient(losses["loss"], self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return losses

    def test_step(self, data):
        return self.losses_of(data[0] if isinstance(data, tuple) else data)


def build(input_shape, outputs):
    return Vae(input_shape)
