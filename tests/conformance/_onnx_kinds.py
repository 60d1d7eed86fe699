"""Which ONNX ops a transformer uses: in its layers, around them (masks, positions, caches, sampling), in training."""

from typing import Final

TRANSFORMER_OPS: Final = frozenset(
    """
    Abs Add And ArgMax ArgMin Attention BatchNormalization BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast CastLike CausalConvWithState Ceil Clip Concat Constant ConstantOfShape Conv Cos CumSum Div Dropout
    Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm Greater
    GreaterOrEqual GroupNormalization Hardmax HardSigmoid HardSwish Identity InstanceNormalization IsInf IsNaN
    LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax LpNormalization MatMul Max Mean
    Min Mish Mod Mul Neg NegativeLogLikelihoodLoss Not OneHot Or Pad Pow PRelu Range Reciprocal ReduceL1
    ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    Relu Reshape RMSNormalization RotaryEmbedding Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin
    Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign Split Sqrt Squeeze Sub Sum SwiGLU Swish Tanh
    TensorScatter Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()
)
