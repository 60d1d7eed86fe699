"""Lowering: graph passes and emission."""
