"""The loss of a language model."""

from lang_core import ExecutionContext, OpError, Tensor


def cross_entropy(ctx: ExecutionContext, logits: Tensor, labels: Tensor) -> Tensor:
    """Computes the mean of -log(softmax(logits)) at the labels, in nats.

    Args:
        ctx: context that computes.
        logits: floating [.., V].
        labels: i32 or i64 [..], each in 0 .. V - 1.

    Returns:
        The mean, rank 0, in the logits' dtype.

    Raises:
        OpError: the labels do not have the logits' leading shape.
    """
    return ctx.ops.negate(ctx.ops.mean(_log_probabilities(ctx, logits, labels)))


def weighted_cross_entropy(ctx: ExecutionContext, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Computes the sum of -log(softmax(logits)) at the labels, each times a weight, in nats.

    Args:
        ctx: context that computes.
        logits: floating [.., V].
        labels: i32 or i64 [..], each in 0 .. V - 1.
        weights: f32 [..]; those that sum to 1 give a mean, and 0 leaves a label out.

    Returns:
        The sum, rank 0, f32.

    Raises:
        OpError: the labels or the weights do not have the logits' leading shape.
    """
    if weights.shape != labels.shape:
        raise OpError(
            f"weighted_cross_entropy: weights have shape {weights.shape}, labels {labels.shape}: give one weight for "
            "each label"
        )
    ops = ctx.ops
    chosen = _log_probabilities(ctx, ops.cast(logits, "f32"), labels)
    return ops.negate(ops.sum(ops.mul(ops.reshape(chosen, labels.shape), weights)))


def _log_probabilities(ctx: ExecutionContext, logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the logarithms of the labels' probabilities, [.., 1]."""
    if labels.shape != logits.shape[:-1]:
        raise OpError(
            f"cross_entropy: labels have shape {labels.shape}, logits {logits.shape}: give one label for each row"
        )
    ops = ctx.ops
    return ops.gather(ops.log_softmax(logits), ops.reshape(labels, (*labels.shape, 1)), -1)
