#!/bin/sh
# Writes the hash-pinned requirement files from pyproject.toml. Needs uv; its options can follow, such as --upgrade.
set -eu
cd "$(dirname "$0")/.."

lock() {
  output=$1
  shift
  uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --python-version 3.11 \
    --custom-compile-command requirements/lock.sh --output-file "$output" "$@"
}

lock requirements/dev.txt pyproject.toml --all-extras --group build --group test --group lint --group ops "$@"
lock requirements/base.txt pyproject.toml --constraint requirements/dev.txt
lock requirements/fast.txt pyproject.toml --constraint requirements/dev.txt --extra fast
lock requirements/build.txt --constraint requirements/dev.txt --group build
