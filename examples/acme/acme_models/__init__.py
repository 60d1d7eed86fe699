"""Additions of the Acme team to Tapeline, which importing this module registers.

- an op, ``acme.softclip``, with its meaning in every context (``_softclip.py``);
- a family of models that uses it (``_family.py``);
- an encoding of packed weights (``_encoding.py``);
- a kernel with a configuration (``_kernel.py``).
"""

from acme_models._encoding import ACME_Q4
from acme_models._family import ACME
from acme_models._kernel import SoftclipKernel
from acme_models._softclip import SOFTCLIP, softclip

__all__ = ["ACME", "ACME_Q4", "SOFTCLIP", "SoftclipKernel", "softclip"]
