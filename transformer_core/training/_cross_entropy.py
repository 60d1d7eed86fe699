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
    if labels.shape != logits.shape[:-1]:
        raise OpError(
            f"cross_entropy: labels have shape {labels.shape}, logits {logits.shape}: give one label for each row"
        )
    ops = ctx.ops
    chosen = ops.gather(ops.log_softmax(logits), ops.reshape(labels, (*labels.shape, 1)), -1)
    return ops.negate(ops.mean(chosen))
