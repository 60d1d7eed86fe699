"""Additions of the Acme team to Tapeline, which importing this module registers.

- an op, ``acme.softclip``, with its meaning in every context (``_softclip.py``);
- a family of models that uses it (``_family.py``);
- an encoding of packed weights (``_encoding.py``);
- a kernel with a configuration (``_kernel.py``);
- an instruction set, and CPU kernels of the op (``_cpu_kernel.py``);
- an engine (``_engine.py``).
"""

from acme_models._cpu_kernel import ACME_RCP
from acme_models._encoding import ACME_Q4
from acme_models._engine import ACME_NUMPY, NumPySession
from acme_models._family import ACME
from acme_models._kernel import SoftclipKernel
from acme_models._softclip import SOFTCLIP, softclip

__all__ = ["ACME", "ACME_NUMPY", "ACME_Q4", "ACME_RCP", "SOFTCLIP", "NumPySession", "SoftclipKernel", "softclip"]
