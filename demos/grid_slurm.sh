#!/bin/bash
#SBATCH --job-name=agentzoo-grid
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=12:00:00
# A grid on the nodes of a Slurm job: sbatch demos/grid_slurm.sh --agents 'dt-hopper-medium,dm-*' --seeds 0-2
# Ray starts on every node, the grid runs on the first, and Ray stops when it ends. Submit it again to go on.
# Without Slurm it uses this machine alone: bash demos/grid_slurm.sh --agents dt-hopper-medium
set -euo pipefail
export RAY_USAGE_STATS_ENABLED=0
PORT=${PORT:-6379}
NODES=${SLURM_JOB_NUM_NODES:-1}
CPUS=${SLURM_CPUS_PER_TASK:-$(nproc)}
OUT=${OUT:-runs}
if [ -n "${SLURM_JOB_ID:-}" ]; then
    HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    ADDRESS=$(getent ahostsv4 "$HEAD" | awk 'NR == 1 { print $1 }'):$PORT
    LAUNCH=(srun --kill-on-bad-exit=1)
else
    ADDRESS=127.0.0.1:$PORT
    LAUNCH=()
fi
# --sync is found out: nodes that do not see $OUT send their runs' folders to the first node at each checkpoint
"${LAUNCH[@]}" ray symmetric-run --address "$ADDRESS" --min-nodes "$NODES" --num-cpus "$CPUS" \
    --include-dashboard=false -- agentzoo grid --address auto --out "$OUT" --yes "$@"
