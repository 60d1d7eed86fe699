#!/bin/sh
# Writes the two locks anew, with the hashes of every file: the newest versions that the .in files allow and
# that install on Python 3.11, the oldest Python supported (the same versions then install on later ones).
# Arguments go to uv: `--upgrade`, or `--upgrade-package=jax`. Without any, versions that are locked now
# stay where they still fit.
set -eu
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "update_lock.sh needs uv: python3 -m pip install uv" >&2; exit 1; }
for name in requirements lint_requirements; do
    uv pip compile --quiet --python-version=3.11 --python-platform=x86_64-manylinux_2_28 --generate-hashes \
        --no-emit-index-url --no-emit-find-links \
        --custom-compile-command='bash third_party/update_lock.sh' \
        --output-file="third_party/${name}_lock.txt" "$@" "third_party/$name.in" >/dev/null
done
