#!/bin/bash
#SBATCH --job-name=fedscape
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
# A training that is longer than the queue allows, or is preempted: SLURM sends SIGUSR1 to it 120 seconds before the
# time limit (SIGTERM where the job is preempted), it ends after its round with exit code 75, and the job goes back into
# the queue.  Submit it with: sbatch docs/slurm-requeue.sh
#
# What a command answers: 0 done; 1 some of the figures failed; 2 bad input; 3 diverged; 75 stopped by the scheduler, and
# the same command goes on where it was; 130 Ctrl-C; 143 and 138 stopped by SIGTERM or SIGUSR1 with nothing kept.
#
# Other work goes on in the same way: analysis.hessian with --state FILE, analysis.surface, analysis.corruptions,
# figures make, gallery, compare and demo.  Give the command as arguments to run another one than this:
if [ "$#" -eq 0 ]; then
    set -- python -m trainers fedavg --rounds 1000 --out runs/fedavg --resume
fi

trap 'true' TERM USR1 # this shell goes on, so that it can look at the answer
srun "$@" &
wait "$!"
status=$?
while [ "$status" -gt 128 ] && kill -0 "$!" 2>/dev/null; do # a signal to this shell ended the wait, not the command
    wait "$!"
    status=$?
done

if [ "$status" -eq 75 ]; then
    echo "stopped by the scheduler: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
