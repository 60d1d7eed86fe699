"""The version of every wheel, and of what they require of each other.

Bundles have it from `VERSION` of tapeline/exporting/_producer.py, which a test there holds equal.
"""

VERSION = "0.1.0"
