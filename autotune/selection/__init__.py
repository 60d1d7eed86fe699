"""Selection of a configuration: tier after tier, within a policy."""

from autotune.selection._chain import ConfigSelectorChain
from autotune.selection._chooser import ConfigChooser
from autotune.selection._policy import POLICIES, AutotunePolicy, policy_override
