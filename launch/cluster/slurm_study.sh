#!/usr/bin/env bash
# Reproduces a table of the paper on SLURM. Each task of an array trains some of the rows. The arguments are the flags
# of launch.study.
#
#   sbatch --array=1-20 launch/cluster/slurm_study.sh --table=3 --scale=paper --data_dir=data/wmt14 \
#       --study_dir=runs/table3_paper
#   DRY_RUN=1 launch/cluster/slurm_study.sh ...      prints the command that a task would run
#
# The resources of each task; the same options on sbatch's command line override these lines.
#SBATCH --job-name=t2t-study
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --output=%x-%A_%a.log
#
# The program, not this script, receives SIGTERM five minutes before the time limit, saves and exits with 143, and the
# task is requeued. The same happens if the task is preempted and the partition has a GraceTime.
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

# ---- settings: environment variables and their defaults --------------------------
: "${PYTHON:=.venv/bin/python}"  # of an environment on a file system of all nodes
: "${RESTARTS:=100}"             # maximum number of times that a stopped task is requeued
: "${DRY_RUN:=}"
# ---------------------------------------------------------------------------------

first=${SLURM_ARRAY_TASK_MIN:-1} last=${SLURM_ARRAY_TASK_MAX:-1} count=${SLURM_ARRAY_TASK_COUNT:-1}
if ((last - first + 1 != count)); then
  echo "error: the tasks of the array must have consecutive numbers, such as --array=1-20" >&2
  exit 1
fi
part=$((${SLURM_ARRAY_TASK_ID:-1} - first + 1))
step=(srun "$PYTHON" -m launch.study "--shard=$part/$count" "$@")

if [[ -n $DRY_RUN ]]; then
  for word in "${step[@]}"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    printf '%s ' "$word"
  done
  printf '\n'
  exit
fi
if [[ -z ${SLURM_JOB_ID:-} ]]; then
  echo "error: no SLURM job: start this with sbatch, or with DRY_RUN=1 to see what it would run" >&2
  exit 1
fi

# Since SLURM 22.05, srun does not take this number from the job, and the program would get only one core.
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
status=0
"${step[@]}" || status=$?
# 143: saved and stopped by SIGTERM. Any other status would only recur.
if [[ $status -eq 143 ]] && ((${SLURM_RESTART_COUNT:-0} < RESTARTS)); then
  echo "status $status: the job is requeued" >&2
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
