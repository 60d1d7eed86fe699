"""Flags of a model that is exported into the user's cache before it is used."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from absl import flags

import tapeline
from lang_core import InputError
from run_iree import target_of_device
from tapeline.backends import Place
from tapeline.cli import Progress, user_path

if TYPE_CHECKING:  # it loads all of the export, which a bundle does not need
    from tapeline.command._export_process import ExportProcess, Follower

SERVED_SLOTS: Final = 4
"""Slots of a bundle that ``serve`` exports by default."""

BEFORE: Final = "before"
"""Value of ``--verify`` with which a server answers only when a bundle that it exports is verified."""


@dataclass(frozen=True, slots=True)
class ModelFlags:
    """Holders of the flags of a model.

    Attributes:
        model: ``--model``.
        again: ``--export_again``.
        options: options of the export, by name; those that are None take the export's default.
    """

    model: flags.FlagHolder[str | None]
    again: flags.FlagHolder[bool]
    options: dict[str, flags.FlagHolder[Any]]

    def refuse(self) -> None:
        """Refuses options of an export if a bundle is given instead of a model.

        Raises:
            InputError: one is given.
        """
        given = [name for name, holder in self.options.items() if holder.value is not None]
        if self.again.value:
            given.append("export_again")
        if given:
            names = ", ".join(f"`{name}`" for name in given)
            raise InputError(f"{names}: options of an export go with `model`; a `bundle` is exported already")

    def bundle(
        self,
        place: Place,
        progress: Progress,
        *,
        model: str | None = None,
        slots: int | None = None,
        slots_if_any: int | None = None,
        verify_tokens: int | None = None,
        adapters: tuple[int, int] | None = None,
        process: "ExportProcess | None" = None,
        follower: "Follower | None" = None,
        chats: bool = False,
    ) -> tapeline.Bundle:
        """Returns the model's bundle for an engine's device.

        Args:
            place: engine and devices.
            progress: receives steps, warnings and bytes.
            model: default of the flag.
            slots: rows of a bundle for a server; None for another bundle.
            slots_if_any: with ``process``, the same for a model that has rows; others are exported without.
            verify_tokens: tokens that a call of such a bundle verifies; None without drafts.
            adapters: number and greatest rank of the adapters that such a bundle takes; None for none.
            process: exports, if that is not to be done here; None for here.
            follower: with ``process``, receives the verification, unless ``--verify=before`` waits for it.
            chats: True refuses a model without a chat template before it is exported.
        """
        sizes = {"slots": slots, "slots_if_any": slots_if_any, "verify_tokens": verify_tokens}
        given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
        given |= {} if adapters is None else {"adapters": adapters[0], "adapter_rank": adapters[1]}
        given |= {name: holder.value for name, holder in self.options.items() if holder.value is not None}
        if given.get("verify") == BEFORE:
            del given["verify"]
            follower = None
        given["target"] = [target_of_device(place.name)] if place.engine == "iree" else []
        given |= {"base": user_path(""), "again": self.again.value, "chats": chats}
        name = self.model.value or model or ""
        if process is not None:
            return process.run(name, progress, given, follower)
        served = SERVED_SLOTS if slots is None else None
        return tapeline.cached_export(name, progress=progress, or_slots=served, **given)


_OPTIONS: Final = {
    "dtype": "Dtype of activations and unquantized weights",
    "quantize": "Encoding of weight matrices",
    "activations": "Activations of products with quantized weights",
    "verify": "Verification; before: as auto, and serve answers when it is done",
}


def define_model_flags(values: flags.FlagValues) -> ModelFlags:
    """Defines the flags of a model in a command's flags."""
    return ModelFlags(
        flags.DEFINE_string(
            "model",
            None,
            "Model to use instead of a bundle: a Hugging Face directory, a .gguf file, a name on the hub, or demo. It "
            "is exported into the user's cache at first use.",
            flag_values=values,
        ),
        flags.DEFINE_bool(
            "export_again", False, "Export again even if the cache has the bundle. Needs --model.", flag_values=values
        ),
        {
            name: flags.DEFINE_string(name, None, f"{text} (see export). Needs --model.", flag_values=values)
            for name, text in _OPTIONS.items()
        }
        | {
            "max_sequence": flags.DEFINE_integer(
                "max_sequence",
                None,
                "Capacity of the KV cache, in tokens of prompt and answer. Needs --model; each value has its own "
                "export. Default: the model's context length, at most 2048.",
                lower_bound=1,
                flag_values=values,
            )
        },
    )
