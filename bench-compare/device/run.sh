#!/usr/bin/env bash
# Measures Larder on a machine with an NVIDIA GPU and many cores, also on one without a network: README.md beside this.
#
#     bench-compare/device/run.sh [--rehearse] [--list] [--commands] [--only PART,PART] [--seconds N]
#
# Figures go to the folder $OUT (./device-figures if it is not set). Called again, it goes on where it stopped.
set -euo pipefail
command -v python3 >/dev/null || { echo "run.sh: there is no python3" >&2; exit 1; }
exec python3 "$(dirname "$0")/runner.py" "$@"
