"""Sessions: compiled modules on a device, their tensors, and calls of their entry points."""

from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._function import Function
from run_iree.sessions._held import HeldTensors
from run_iree.sessions._host_function import HostFunction
from run_iree.sessions._results import Results
from run_iree.sessions._session import Session
from run_iree.sessions._updating import Updating
