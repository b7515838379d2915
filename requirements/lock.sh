#!/usr/bin/env bash
# Writes build.txt, bench.txt, test.txt and triton-*.txt anew from pyproject.toml and the .in files; needs uv (pip install uv).
# What is locked stays as it is where it still fits: `requirements/lock.sh --upgrade` takes the newest of everything,
# `requirements/lock.sh --upgrade-package ruff` of one.
set -euo pipefail
cd "$(dirname "$0")/.."

lock() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url "$@"
}

lock pyproject.toml requirements/build.in --output-file requirements/build.txt "$@"
# Benchmarks and tests get the build's packages in the build's versions: bootstrap.py adds the rest to a .venv made for
# building. One of the tests runs the benchmarks, small, so the tests need what these do.
lock pyproject.toml requirements/build.in requirements/bench.in --constraint requirements/build.txt \
    --output-file requirements/bench.txt "$@"
lock pyproject.toml requirements/build.in requirements/bench.in requirements/test.in --constraint requirements/bench.txt \
    --output-file requirements/test.txt "$@"
# The other releases of Triton that Kiln builds with, for the tests: each goes into a folder of its own.
for release in 3.6 3.7 3.8; do
    echo "triton==$release.*; python_version < '3.15'" |
        lock --no-deps - --output-file "requirements/triton-$release.txt" "$@"
done
