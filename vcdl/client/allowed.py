"""The Keras classes and functions that a model may consist of, and the reasons for excluding the others."""

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

ADVICE = "use Keras' own layers and operations only"
_LEFT_OUT = {
    f"it contains code, which is never sent to a volunteer; {ADVICE}": (
        "Lambda __lambda__ FlaxLayer JaxLayer TFSMLayer TorchModuleWrapper"
    ),
    "it turns text or numbers into classes, and may read files: apply it to the data before it is cut into shards": (
        "HashedCrossing Hashing IntegerLookup StringLookup TextVectorization"
    ),
    "it changes labels or boxes, which a model does not get: apply it to the data before it is cut into shards": (
        "CutMix MaxNumBoundingBoxes MixUp"
    ),
    "it is only a base class: use a class that is derived from it": "Layer Wrapper SegmentReduction",
    "this operation takes a function, which would be code; use another operation, or a layer": (
        "AssociativeScan Cond ForiLoop JVP Map Scan Switch VectorizedMap WhileLoop"
    ),
    "this operation draws the same random numbers in every subtask; use a layer": "ElasticTransform",
    "this operation has no fixed shape, or returns unset values; use another operation": "EmptyLike Nonzero Unique",
    "this operation gives one result for a whole batch; use one with an axis": "AllClose Histogram Ndim Size Vander",
    "this operation was not tried on every backend, or takes no batches; use another one, such as linspace": (
        "Array Eig Geomspace Logspace Lstsq LuFactor MatrixRank View"
    ),
    "this operation takes labels, which a model does not get: use the loss ctc": "CTCDecode CTCLoss",
}
LEFT_OUT = {name: why for why, names in _LEFT_OUT.items() for name in names.split()}
"""Layer or operation of Keras → why it is not allowed."""

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
"""Classes of `keras.initializers` that draw random numbers."""
_INITIALIZERS = RANDOM_INITIALIZERS | {"Constant", "Identity", "IdentityInitializer", "Ones", "Zeros"}
_MODELS = frozenset({"Sequential", "Functional"})

_OPERATIONS = {
    "core": """
        Cast ConvertToTensor SaturateCast Scatter ScatterUpdate Slice SliceUpdate StopGradient Unstack
    """,
    "einops": "Rearrange",
    "image": """
        AffineTransform CropImages ExtractPatches GaussianBlur HSVToRGB MapCoordinates PadImages PerspectiveTransform
        RGBToGrayscale RGBToHSV Resize ScaleAndTranslate SobelEdges SSIM
    """,
    "linalg": "Cholesky CholeskyInverse Det Eigh Inv Norm Pinv Qr Solve SolveTriangular SVD",
    "math": """
        CDist Erf Erfc Erfinv ExtractSequences FFT FFT2 IFFT2 IRFFT ISTFT InTopK Logdet Logsumexp RFFT Rsqrt STFT
        SegmentMax SegmentMin SegmentProd SegmentSum TopK ViewAsComplex ViewAsReal
    """,
    "nn": """
        AdaptiveAveragePool AdaptiveMaxPool AveragePool BatchNorm BinaryCrossentropy CategoricalCrossentropy Celu Conv
        ConvTranspose DepthToSpace DepthwiseConv DotProductAttention Elu Fold Gelu Glu HardShrink HardSigmoid HardSilu
        HardTanh LayerNorm LeakyRelu LogSigmoid LogSoftmax MaxPool Moments MultiHot Normalize OneHot Polar PSNR
        RMSNorm Relu Relu6 Selu SeparableConv Sigmoid Silu SoftShrink Softmax Softplus Softsign SpaceToDepth
        SparseCategoricalCrossentropy SparsePlus SparseSigmoid Sparsemax Squareplus TanhShrink Threshold Unfold
    """,
    "numpy": """
        Abs Absolute Add All Amax Amin Angle Any Append Arange Arccos Arccosh Arcsin Arcsinh Arctan Arctan2 Arctanh
        Argmax Argmin Argpartition Argsort ArraySplit Average Bincount BitwiseAnd BitwiseInvert BitwiseLeftShift
        BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor BroadcastTo Cbrt Ceil Clip Concatenate Conj Conjugate Copy
        Corrcoef Correlate Cos Cosh CountNonzero Cross Cumprod Cumsum Deg2rad Diag Diagflat Diagonal Diff Digitize
        Divide DivideNoNan Dot Dsplit Dstack Einsum Equal Exp Exp2 ExpandDims Expm1 Fabs Flip Fliplr Flipud Floor
        FloorDivide Fmax Fmin Fmod Full FullLike Gcd GetItem Greater GreaterEqual Heaviside Hsplit Hstack Hypot I0 Imag
        Inner IsIn Isclose Isfinite Isinf Isnan Isneginf Isposinf Isreal Kron Lcm Ldexp LeftShift Less LessEqual
        Linspace Log Log10 Log1p Log2 Logaddexp Logaddexp2 LogicalAnd LogicalNot LogicalOr LogicalXor Matmul Max Maximum
        Mean Median Meshgrid Min Minimum Mod Moveaxis Multiply NanToNum Nanargmax Nanargmin Nancumprod Nancumsum Nanmax
        Nanmean Nanmedian Nanmin Nanpercentile Nanprod Nanquantile Nanstd Nansum Nanvar Negative Nextafter NotEqual
        OnesLike Outer Pad Percentile Power Prod Ptp Quantile Rad2deg Ravel Real Reciprocal Repeat Reshape RightShift
        Roll Rot90 Round SearchSorted Select Sign Signbit Sin Sinc Sinh Slogdet Sort Split Sqrt Square Squeeze Stack Std
        Subtract Sum Swapaxes Take TakeAlongAxis Tan Tanh Tensordot Tile Trace Transpose Trapezoid Tril Triu TrueDivide
        Trunc UnravelIndex Var Vdot Vsplit Vstack Where ZerosLike
    """,
}
OPERATIONS = {
    "keras.src.activations.activations": frozenset({"Mish", "ReLU"}),
    **{f"keras.src.ops.{module}": frozenset(names.split()) for module, names in _OPERATIONS.items()},
}
"""Pure operations between layers, by the module that Keras writes: the form of `x + y` and `keras.ops.mean(x)` in JSON,
and the masks that Keras records itself. All map tensors and plain numbers to tensors."""

CONSTANTS = frozenset({"__numpy__", "__tensor__"})
"""Keras' class names for an array in a model: `x + positions`."""
_CONSTANT_TYPES = """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16
"""
CONSTANT_TYPES = tuple(_CONSTANT_TYPES.split())
SLICE_KEYS = frozenset({"start", "stop", "step"})
"""Keys of a `__slice__` object: `x[:, 1:3]`."""

QUANTIZED = "QuantizedDTypePolicy"
INT8_POLICIES = tuple({"mode": "int8", "source_name": name} for name in ("float32", "mixed_bfloat16"))
"""Configurations of the policies under which a layer stores its kernel as int8."""

CLASSES = {
    "keras": _MODELS | {"DTypePolicy"},
    "keras.models": _MODELS,
    "keras.src.models.functional": frozenset({"Functional"}),
    "keras.src.models.sequential": frozenset({"Sequential"}),
    "keras.dtype_policies": frozenset({"DTypePolicy", QUANTIZED}),
    "keras.quantizers": frozenset({"Int8QuantizationConfig", "AbsMaxQuantizer"}),
    "keras.layers": LAYERS,
    "keras.initializers": _INITIALIZERS,
    "keras.regularizers": frozenset({"L1", "L1L2", "L2", "OrthogonalRegularizer"}),
    "keras.constraints": frozenset({"MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm"}),
    **OPERATIONS,
}
"""The classes that a model's JSON may name, by module."""

FUNCTION_MODULES = ("keras.activations", "builtins")
"""Modules that a function may come from; Keras writes "builtins" for its own functions."""
