"""Facts of models and bundles: counts of work, plans for machines, outlines, pictures."""
