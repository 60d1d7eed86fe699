"""Timing of candidates: each is checked against a reference, then timed in turns."""

from autotune.tuning._candidates import tune_call
from autotune.tuning._tuner import Tuner, why_not_here
