"""The one place of the version: of every wheel, and of what they require of each other."""

VERSION = "0.1.0"
