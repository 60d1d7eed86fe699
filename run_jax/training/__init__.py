"""Training on JAX: a compiled step of AdamW on any mesh of devices, and checkpoints from which it goes on bit for bit.

>>> import jax.numpy as jnp, numpy as np
>>> from run_jax.training import OptimizerOptions, Trainer
>>> def objective(trainable, frozen, x, y):
...     return jnp.sum((x @ trainable["w"] - y) ** 2)
>>> trainer = Trainer(objective, OptimizerOptions(steps=3, learning_rate=0.1))
>>> state = trainer.start({"w": np.zeros((2, 1), np.float32)})
>>> batch = np.ones((1, 4, 2), np.float32), np.ones((1, 4, 1), np.float32)
>>> losses = []
>>> for _ in range(3):
...     state, loss = trainer.step(state, {}, *batch)
...     losses.append(round(loss, 2))
>>> losses
[4.0, 2.56, 1.78]
"""

from run_jax.training._checkpoints import TrainingCheckpoints
from run_jax.training._mesh import TrainingMesh
from run_jax.training._optimizer import SCHEDULES, OptimizerOptions, Schedule, adamw, rate_schedule
from run_jax.training._processes import device_names, is_writer, wait_for_all
from run_jax.training._trace import trace
from run_jax.training._trainer import Trainer, TrainingState
