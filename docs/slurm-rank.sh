#!/bin/bash
# One rank of a run on several SLURM tasks: gives a command what torchrun would, from SLURM's own variables.  With it the
# exit code of a rank is srun's, which torchrun would turn into 1.  Submit it within the script that requeues:
#
#   sbatch --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=4 docs/slurm-requeue.sh \
#       docs/slurm-rank.sh python -m trainers fedsmoo --clients 1000 --per-round 100 --out runs/wide --resume
#
# GPUs: give --gpus-per-node (a task must see all GPUs of its node: rank N of a node takes cuda:N), not --gpus-per-task.
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
export MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
exec "$@"
