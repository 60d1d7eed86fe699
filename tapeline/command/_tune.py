"""Lists, explains and tunes kernel configurations.

tune list                                    stored configurations
tune explain --op=NAME [--call=KEY]          why a call has its configuration: candidates and their times
tune explain --bundle=DIR [--op=NAME]        the calls of a bundle, and the source of each configuration
tune recorded                                tune the calls that a run with TAPELINE_OPS_RECORD=1 recorded
tune cpu                                     measure the CPU kernels on this machine, for later exports
tune pin --op=NAME --call=KEY [--cfg=JSON]   keep a configuration even if tuning finds a faster one
tune clear [--op=NAME] [--call=KEY]          remove configurations
tune export --file=FILE, tune import --file=FILE   copy configurations to another machine
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from absl import flags

from lang_core import InputError
from tapeline import cli
from tapeline.analysis.drawing import Candidate, check_picture, write_candidate_bars
from tapeline.bundle import Bundle
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.tuning import (
    CacheEntry,
    PersistentCache,
    TunedCall,
    as_json,
    bundle_calls,
    bundle_text,
    cfg_text,
    clear_entries,
    entries_text,
    explanation,
    find_entry,
    list_entries,
    load_kernels,
    open_cache,
    pin_entry,
    tune_cpu,
    tune_recorded,
    tuned_text,
)

ACTIONS: Final = ("list", "explain", "recorded", "cpu", "pin", "clear", "export", "import")

FLAGS: Final = flags.FlagValues()
POSITIONAL: Final = ("action", ACTIONS)

_ACTION: Final = flags.DEFINE_enum(
    "action", "list", ACTIONS, "Action; it may also be the first argument, without --action=.", flag_values=FLAGS
)
_CACHE: Final = flags.DEFINE_string(
    "cache", None, "File of tuned configurations. Default: the file in the user's cache.", flag_values=FLAGS
)
_OP: Final = flags.DEFINE_string(
    "op", None, "Op to select, with or without its version. Default: all.", flag_values=FLAGS
)
_CALL: Final = flags.DEFINE_string(
    "call", None, "Call to select, by the first characters of its key. Default: all.", flag_values=FLAGS
)
_CFG: Final = flags.DEFINE_string(
    "cfg", None, "Configuration for pin, as JSON. Default: the stored configuration.", flag_values=FLAGS
)
_BUNDLE: Final = flags.DEFINE_string(
    "bundle", None, "Bundle for explain, exported with --kernels=tuned.", flag_values=FLAGS
)
_FILE: Final = flags.DEFINE_string("file", None, "File for export and import.", flag_values=FLAGS)
_RECORD: Final = flags.DEFINE_string(
    "record", None, "File of recorded calls, for recorded. Default: the file in the user's cache.", flag_values=FLAGS
)
_KERNELS: Final = flags.DEFINE_list("kernels", [], "Python modules with additional kernels.", flag_values=FLAGS)
_COMPILER: Final = flags.DEFINE_enum(
    "compiler",
    None,
    ["iree", "jax"],
    "Compiler of the candidates, for recorded. Default: the compiler of the recorded call.",
    flag_values=FLAGS,
)
_ROUNDS: Final = flags.DEFINE_integer(
    "rounds", 3, "Number of samples per candidate, for recorded and cpu.", lower_bound=1, flag_values=FLAGS
)
_PICTURE: Final = flags.DEFINE_string(
    "picture",
    None,
    "File (.png or .svg) for a bar chart of the candidates, for recorded, cpu and explain.",
    flag_values=FLAGS,
)
_FORMAT: Final = FormatFlag(FLAGS)

_USERS: Final[Mapping[str, Collection[str]]] = {
    "op": ("list", "explain", "recorded", "pin", "clear"),
    "call": ("explain", "pin", "clear"),
    "cfg": ("pin",),
    "bundle": ("explain",),
    "record": ("recorded",),
}
"""Flags that choose what an action works on, and the actions that use them. Others would work on something else."""


def main() -> None:
    """Runs the action."""
    _check_flags()
    load_kernels(_KERNELS.value)
    cache = open_cache(cli.user_path(_CACHE.value) if _CACHE.value else None)
    picture = cli.output_file("picture", _PICTURE.value)
    if picture is not None:
        check_picture(picture)
    actions = {"list": _list, "explain": _explain, "recorded": _recorded, "cpu": _cpu, "pin": _pin, "clear": _clear}
    if _ACTION.value in actions:
        actions[_ACTION.value](cache, picture)
    else:
        _carry(cache)


def _check_flags() -> None:
    """Refuses flags of selection that the action does not use."""
    for name, actions in _USERS.items():
        if FLAGS[name].present and _ACTION.value not in actions:
            raise InputError(f"`{name}` goes with {' and '.join(actions)}, and not with {_ACTION.value}: leave it out")
    if _BUNDLE.value is not None and FLAGS["call"].present:
        raise InputError("`call` names a call that is remembered, and `bundle` has others: give one of them")


def _list(cache: PersistentCache[Any], picture: Path | None) -> None:
    del picture
    entries = list_entries(cache, _OP.value)
    _print(entries, entries_text(entries))


def _explain(cache: PersistentCache[Any], picture: Path | None) -> None:
    if _BUNDLE.value is not None:
        bundle = Bundle(cli.user_path(_BUNDLE.value))
        calls = bundle_calls(bundle, cache, _OP.value)
        _put(calls, bundle_text(bundle, calls, cache))
        return
    entry = find_entry(cache, _OP.value, _CALL.value)
    _print([entry], explanation(entry))
    if picture is not None:
        write_candidate_bars([_bars(f"{entry.key.op} {entry.key.call}", entry)], picture)


def _recorded(cache: PersistentCache[Any], picture: Path | None) -> None:
    record = cli.user_path(_RECORD.value) if _RECORD.value else None
    tuned, skipped = tune_recorded(cache, record, _COMPILER.value, _ROUNDS.value, _OP.value)
    _print([call.entry for call in tuned], tuned_text(tuned, skipped))
    if picture is not None and tuned:
        write_candidate_bars([_bars(call.title, call.entry) for call in _shown(tuned)], picture)


def _cpu(cache: PersistentCache[Any], picture: Path | None) -> None:
    tuned = tune_cpu(cache, _ROUNDS.value)
    _print([call.entry for call in tuned], tuned_text(tuned, []))
    if picture is not None:
        write_candidate_bars([_bars(call.title, call.entry) for call in tuned], picture)


def _shown(tuned: list[TunedCall]) -> list[TunedCall]:
    most = 16
    if len(tuned) > most:
        cli.say(f"the picture shows the first {most} of {len(tuned)} calls")
    return tuned[:most]


def _bars(title: str, entry: CacheEntry[Any]) -> tuple[str, list[Candidate]]:
    chosen = cfg_text(entry.cfg)
    return title, [
        Candidate(
            cfg_text(m.cfg),
            m.seconds if m.status == "ok" else None,
            cfg_text(m.cfg) == chosen,
            f"{m.status}: {m.detail[:80]}",
        )
        for m in entry.measurements
    ]


def _pin(cache: PersistentCache[Any], picture: Path | None) -> None:
    del picture
    entry = pin_entry(cache, find_entry(cache, _OP.value, _CALL.value), _CFG.value)
    _print([entry], f"pinned {entry.key.op} {entry.key.call}: {cfg_text(entry.cfg)}\n")


def _clear(cache: PersistentCache[Any], picture: Path | None) -> None:
    del picture
    forgotten = clear_entries(cache, _OP.value, _CALL.value)
    _put({"forgotten": forgotten, "cache": cache.path}, f"forgot {forgotten} entries of {cache.path}\n")


def _carry(cache: PersistentCache[Any]) -> None:
    if _FILE.value is None:
        raise InputError(f"{_ACTION.value}: name the file that is carried with --file")
    path = cli.user_path(_FILE.value)
    if _ACTION.value == "export":
        count = cache.export(path)
        _put({"written": count, "file": path}, f"wrote {count} entries to {path}\n")
    else:
        count = cache.import_from(path)
        _put({"taken_over": count, "file": path}, f"took over {count} entries from {path}\n")


def _print(entries: Sequence[CacheEntry[Any]], text: str) -> None:
    _put([as_json(entry) for entry in entries], text)


def _put(document: Any, text: str) -> None:
    if _FORMAT.is_json:
        put_json(document)
    else:
        print(text, end="")
