#!/usr/bin/env bash
# Trains on SLURM, with one worker per node. The arguments are the flags of launch.train.
#
#   sbatch --nodes=4 launch/cluster/slurm.sh --data_dir=data/wmt14 --model_dir=runs/wmt14 --preset=big
#   DRY_RUN=1 launch/cluster/slurm.sh ...      prints the command that every node would run
#
# The resources of the job; the same options on sbatch's command line override these lines.
#SBATCH --job-name=t2t
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
#
# The workers, not this script, receive SIGTERM five minutes before the time limit, save and exit with 143. The same
# happens if the job is preempted and the partition has a GraceTime. A lost node also requeues the job. Each run of the job
# appends to the log.
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

# ---- settings: environment variables and their defaults --------------------------
: "${PYTHON:=.venv/bin/python}"  # of an environment on a file system of all nodes
: "${BACKEND:=${KERAS_BACKEND:-tensorflow}}"  # or jax, of .[jax] and jax[cuda12]
: "${RESTARTS:=100}"             # maximum number of times that a stopped training is requeued
: "${SAVING_SECONDS:=180}"       # time for the other workers to end after one has ended
: "${DRY_RUN:=}"
# ---------------------------------------------------------------------------------

case $BACKEND in
  tensorflow) words=(--strategy=multiworker) ;;
  jax) words=() ;;
  *)
    echo "error: BACKEND is tensorflow or jax, not $BACKEND" >&2
    exit 1
    ;;
esac
export KERAS_BACKEND=$BACKEND

# Prints a command, quoted for a shell.
show() {
  local word
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    printf '%s ' "$word"
  done
  printf '\n'
}

# The workers find each other through SLURM's variables: --cluster=slurm.
worker=("$PYTHON" -m launch.train "${words[@]}" --cluster=slurm "$@")
# srun exits with the highest status of all workers. The 75 or 143 of other workers would hide the 1 of a failed worker,
# so the shell around a worker replaces 1 by a larger number. This shell also receives SIGTERM, and waits for its worker.
mistake=200
# shellcheck disable=SC2016  # the shell around a worker expands these
around='trap : TERM; "$@"; status=$?; exit $((status == 1 ? '$mistake' : status))'
# If a worker ends, srun must not kill the others while the first worker writes the checkpoint.
step=(srun --kill-on-bad-exit=0 "--wait=$SAVING_SECONDS" bash -c "$around" worker "${worker[@]}")

if [[ -n $DRY_RUN ]]; then
  show "${step[@]}"
  exit
fi
if [[ -z ${SLURM_JOB_ID:-} ]]; then
  echo "error: no SLURM job: start this with sbatch, or with DRY_RUN=1 to see what it would run" >&2
  exit 1
fi

# Since SLURM 22.05, srun does not take this number from the job, and a worker would get only one core.
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
status=0
"${step[@]}" || status=$?
((status != mistake)) || status=1
# 143: saved and stopped by SIGTERM. 75: another worker was lost. 69: a bucket did not answer. All resume from the last
# checkpoint. Any other status would only recur: 1 is a mistake in the flags, the data or the run.
if [[ $status =~ ^(143|75|69)$ ]] && ((${SLURM_RESTART_COUNT:-0} < RESTARTS)); then
  echo "status $status: the job is requeued" >&2
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
