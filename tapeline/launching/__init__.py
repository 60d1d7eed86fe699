"""Ranks on one machine: processes that are started together, and end together."""

from tapeline.launching._environment import PIPE, TOKEN, guard_rank
from tapeline.launching._launcher import Ending, launch
from tapeline.launching._output import stdout_is_ours
