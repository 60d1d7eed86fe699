"""Layers of transformers, each written once against ``ctx.ops``; ``transformer_core`` has their public names.

The letters of axes are those of ``transformer_core``.
"""
