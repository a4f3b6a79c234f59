#!/bin/sh
# gpus.sh [DEV]: prints the compute capabilities of this machine's NVIDIA GPUs ("9.0", each once), if nvidia-smi reports
# them. Fails if there is no such GPU. A driver's device is /dev/nvidiactl. Under WSL 2 it is /dev/dxg, which GPUs of
# other makers have as well.
dev=${1:-/dev}
found=$(PATH=$PATH:/usr/lib/wsl/lib nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) || found=
[ -z "$found" ] || echo "$found" | sort -u
[ -e "$dev/nvidiactl" ] || { [ -e "$dev/dxg" ] && [ -n "$found" ]; }
