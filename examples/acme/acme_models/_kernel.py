"""A kernel with a configuration: softclip of an array in pieces, whose number a tuner may choose."""

import numpy as np

from autotune import Kernel


class SoftclipKernel(Kernel[int, np.ndarray]):
    """``limit * tanh(x / limit)`` of f32 [rows, columns], in pieces of rows; the configuration is their number."""

    op_id = "acme.softclip"

    def run(self, x, limit, *, cfg):
        """Computes the pieces one after the other, so that each stays in a core's cache."""
        return np.concatenate([limit * np.tanh(piece / limit) for piece in np.array_split(x, cfg)])

    def heuristic_cfg(self, inv):
        """Returns one piece for each 64 KiB."""
        return max(1, inv.args[0].nbytes >> 16)

    def candidate_cfgs(self, inv):
        """Returns the numbers of pieces that are worth a try."""
        return [1, 4, 16]
