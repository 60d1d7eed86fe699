"""The product: export, bundles, generation, comparison, tuning, and the command line."""
