"""Models and adapters by their name on the hub: ``org/name[@revision]``, ``org/name:FILE.gguf``, ``org/name:Q4_K_M``.

>>> from tapeline.hub import parse_hub_name
>>> parse_hub_name("org/name@v1.0:Q4_K_M")
HubName(repository='org/name', revision='v1.0', file='Q4_K_M')

``resolve_model`` is the one place where a name becomes files. ``huggingface_hub`` does the transfers, into its own
cache and with its own login; it is imported when the first name of the hub is resolved.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.hub._names import HubError, HubName, ModelLocation, parse_hub_name
    from tapeline.hub._resolve import check_model, resolve_adapter, resolve_model
    from tapeline.hub._state import HubState, hub_state

export_lazily(__name__)
