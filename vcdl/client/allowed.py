"""The Keras classes and functions that a model may consist of. Everything else is refused, even if Keras would
load it.

Left out on purpose: layers that hold code (Lambda, TFSMLayer, JaxLayer, FlaxLayer, TorchModuleWrapper) or open
files (StringLookup, IntegerLookup, TextVectorization), and every operation that is not a layer. Pipeline holds layers,
each of which is checked as all others are.
"""

_LAYERS = """
    InputLayer Activation ActivityRegularization Identity Masking
    Dense EinsumDense Embedding ReversibleEmbedding
    Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose
    DepthwiseConv1D DepthwiseConv2D SeparableConv1D SeparableConv2D
    MaxPooling1D MaxPooling2D MaxPooling3D AveragePooling1D AveragePooling2D AveragePooling3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D
    AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D
    SimpleRNN SimpleRNNCell GRU GRUCell LSTM LSTMCell RNN StackedRNNCells ConvLSTM1D ConvLSTM2D ConvLSTM3D
    Bidirectional TimeDistributed SpectralNormalization
    BatchNormalization LayerNormalization GroupNormalization RMSNormalization UnitNormalization
    Normalization Rescaling
    Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D AlphaDropout GaussianDropout GaussianNoise
    Attention AdditiveAttention MultiHeadAttention GroupQueryAttention
    Reshape Flatten Permute RepeatVector
    Cropping1D Cropping2D Cropping3D UpSampling1D UpSampling2D UpSampling3D
    ZeroPadding1D ZeroPadding2D ZeroPadding3D Resizing CenterCrop
    Concatenate Average Maximum Minimum Add Subtract Multiply Dot
    ReLU LeakyReLU PReLU ELU Softmax
    RandomBrightness RandomContrast RandomCrop RandomErasing RandomFlip RandomHue RandomRotation RandomSaturation
    RandomShear RandomTranslation RandomZoom
    AugMix AutoContrast ContrastLimitedAdaptiveHistogramEqualization Equalization RandAugment RandomColorDegeneration
    RandomColorJitter RandomElasticTransform RandomGaussianBlur RandomGrayscale RandomInvert RandomPerspective
    RandomPosterization RandomSharpness Solarization Pipeline
    CategoryEncoding Discretization MelSpectrogram STFTSpectrogram
"""
LAYERS = frozenset(_LAYERS.split())
"""Classes of `keras.layers`."""

_ACTIVATIONS = """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu linear log_sigmoid
    log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid
    sparsemax squareplus swish tanh tanh_shrink threshold
"""
ACTIVATIONS = frozenset(_ACTIVATIONS.split())
"""Functions of `keras.activations`."""

_RANDOM_INITIALIZERS = """
    GlorotNormal GlorotUniform HeNormal HeUniform LecunNormal LecunUniform Orthogonal OrthogonalInitializer
    RandomNormal RandomUniform TruncatedNormal VarianceScaling
"""
RANDOM_INITIALIZERS = frozenset(_RANDOM_INITIALIZERS.split())
"""Classes of `keras.initializers` that draw."""
_INITIALIZERS = RANDOM_INITIALIZERS | {"Constant", "Identity", "IdentityInitializer", "Ones", "Zeros"}
_MODELS = frozenset({"Sequential", "Functional"})

CLASSES = {
    "keras": _MODELS | {"DTypePolicy"},
    "keras.models": _MODELS,
    "keras.src.models.functional": frozenset({"Functional"}),
    "keras.src.models.sequential": frozenset({"Sequential"}),
    "keras.dtype_policies": frozenset({"DTypePolicy"}),
    "keras.layers": LAYERS,
    "keras.initializers": _INITIALIZERS,
    "keras.regularizers": frozenset({"L1", "L1L2", "L2", "OrthogonalRegularizer"}),
    "keras.constraints": frozenset({"MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm"}),
}
"""The classes that a model's JSON may name, by module."""

FUNCTION_MODULES = frozenset({"keras.activations", "builtins"})
"""Modules that a function may come from; "builtins" is Keras' word for its own."""
