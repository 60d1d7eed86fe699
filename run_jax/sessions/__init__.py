"""Sessions: portable artifacts on JAX's devices, their tensors, and calls of their entry points."""

from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._function import Function
from run_jax.sessions._held import HeldTensors
from run_jax.sessions._partitions import PLATFORMS, Axes, Partitions, device_mesh, devices_of, single
from run_jax.sessions._session import Session
from run_jax.sessions._updating import Results, Updating
