"""Several processes as one: ranks that meet, agree, and make the same calls, over JAX's distributed engine.

Rank 0 opens sessions and calls them; ``Leader`` tells the others, which ``follow``. Only rank 0 makes decisions
(tokens, samples, requests).
"""

from run_jax.processes._facts import Facts, first_difference
from run_jax.processes._follower import follow
from run_jax.processes._join import connect_devices, join, leave
from run_jax.processes._leader import Leader, Opener, exit_for
from run_jax.processes._leading import lead, leading
from run_jax.processes._meeting import SOCKET, Meeting
from run_jax.processes._place import RankPlacement, place_of
