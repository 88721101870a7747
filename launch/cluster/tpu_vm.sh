#!/usr/bin/env bash
# Trains with Keras on JAX on one Cloud TPU VM that may be preempted at any time.
#
#   launch/cluster/tpu_vm.sh up                 creates the disk and the VM, and installs; copy data after it
#   launch/cluster/tpu_vm.sh train --data_dir=/t2t/data/wmt14 --model_dir=/t2t/runs/wmt14 --preset=big
#   launch/cluster/tpu_vm.sh down               deletes the VM; the disk, with the runs, stays
#   DRY_RUN=1 launch/cluster/tpu_vm.sh ...      prints the commands instead of running them
#
# `train` takes the flags of launch.train. It recreates a preempted VM and resumes from the last checkpoint, until the
# training run is complete, fails for a reason that would recur, or the VM cannot be set up. Ctrl-C stops the training,
# which saves first. To copy data to the disk:
#
#   gcloud compute tpus tpu-vm scp --recurse data/wmt14 t2t:/t2t/data --zone=us-central1-a
set -euo pipefail

# ---- settings: environment variables and their defaults --------------------------
: "${NAME:=t2t}"                             # of the VM
: "${ZONE:=us-central1-a}"
: "${PROJECT:=$(gcloud config get-value project 2>/dev/null || true)}"
: "${ACCELERATOR:=v5litepod-8}"              # of one host: the data are read by Python on that host
: "${VERSION:=v2-alpha-tpuv5-lite}"          # of the VM's software, which depends on the kind of TPU
: "${PRICING:=--spot}"                       # empty: not preemptible
: "${DISK:=t2t-disk}"                        # for data and runs, mounted at /t2t; outlives the VM
: "${DISK_SIZE:=500GB}"
: "${DISK_TYPE:=pd-balanced}"                # v6e needs hyperdisk-balanced
: "${DEVICE:=/dev/sdb}"                      # of the disk on the VM; v6e: /dev/nvme0n2
: "${JAX:=jax[tpu]}"                          # the JAX package, such as jax[tpu]==0.10.*
: "${RETRY_SECONDS:=60}"                     # between two attempts to create a VM
: "${SETUPS:=3}"                             # attempts to set up an existing VM, each of which costs money
: "${DRY_RUN:=}"
# ---------------------------------------------------------------------------------

usage() {
  echo "usage: $0 up | train FLAGS_OF_LAUNCH_TRAIN | down" >&2
  exit 2
}

# Prints a command, quoted for a shell.
show() {
  local word
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    printf '%s ' "$word"
  done
  printf '\n'
}

do_or_print() {
  if [[ -n $DRY_RUN ]]; then
    show "$@"
  else
    "$@"
  fi
}

tpu_vm() {
  local verb=$1
  shift
  do_or_print gcloud compute tpus tpu-vm "$verb" "$NAME" "--zone=$ZONE" "--project=$PROJECT" "$@"
}

on_vm() {
  tpu_vm ssh "--command=$1" -- -o ServerAliveInterval=15
}

state() {
  if [[ -n $DRY_RUN ]]; then
    echo MISSING
  else
    gcloud compute tpus tpu-vm describe "$NAME" "--zone=$ZONE" "--project=$PROJECT" '--format=value(state)' \
      2>/dev/null || echo MISSING
  fi
}

# Creates and sets up the VM; skips completed steps.
up() {
  local disk="projects/$PROJECT/zones/$ZONE/disks/$DISK" spot=()
  [[ -z $PRICING ]] || spot=("$PRICING")
  if [[ -n $DRY_RUN ]] || ! gcloud compute disks describe "$DISK" "--zone=$ZONE" "--project=$PROJECT" &>/dev/null; then
    do_or_print gcloud compute disks create "$DISK" "--zone=$ZONE" "--project=$PROJECT" "--size=$DISK_SIZE" \
      "--type=$DISK_TYPE"
  fi
  case $(state) in
    READY) ;;
    MISSING)
      tpu_vm create "--accelerator-type=$ACCELERATOR" "--version=$VERSION" "${spot[@]}" \
        "--data-disk=source=$disk,mode=read-write" || return 1
      ;;
    CREATING | STARTING | RESTARTING | REPAIRING)
      echo "the VM is not ready yet" >&2
      return 1
      ;;
    *) # such a VM cannot be started again
      echo "the VM was preempted or stopped: deleting it" >&2
      tpu_vm delete --quiet
      return 1
      ;;
  esac
  mount_disk && install
}

mount_disk() {
  on_vm "set -e
    sudo blkid $DEVICE || sudo mkfs.ext4 -m 0 $DEVICE
    sudo mkdir -p /t2t
    mountpoint -q /t2t || sudo mount -o discard,defaults $DEVICE /t2t
    sudo chown \$(id -u) /t2t
    mkdir -p /t2t/data /t2t/runs"
}

# The committed state of this repository, and JAX for TPUs; TensorFlow reads the data on the processor.
install() {
  local archive="${TMPDIR:-/tmp}/t2t_keras.tar.gz"
  do_or_print git -C "$(dirname "${BASH_SOURCE[0]}")/../.." archive --output="$archive" HEAD || return 1
  do_or_print gcloud compute tpus tpu-vm scp "$archive" "$NAME:t2t_keras.tar.gz" "--zone=$ZONE" \
    "--project=$PROJECT" || return 1
  on_vm "set -e
    mkdir -p t2t_keras
    tar -xzf t2t_keras.tar.gz -C t2t_keras
    cd t2t_keras
    test -e .installed && exit
    python3 -m pip install --quiet --user uv
    python3 -m uv venv --quiet --clear --python=3.12 .venv
    python3 -m uv pip install --quiet --python=.venv '.[fast,remote]' '$JAX'
    touch .installed"
}

# Stops the VM's training, if any, and waits until it has saved. A training that is still starting first gets $1 seconds
# to start.
stop() {
  # shellcheck disable=SC2016  # the VM's shell expands these
  on_vm 'for i in $(seq '"${1:-0}"'); do test -e worker.pid && break; sleep 1; done
    pid=$(cat worker.pid 2>/dev/null) && rm -f worker.pid && kill -TERM $pid 2>/dev/null || exit 0
    while kill -0 $pid 2>/dev/null; do sleep 1; done' || true
}

# One run of the training.
run() {
  local command="cd t2t_keras && rm -f ../worker.status
    KERAS_BACKEND=jax JAX_COMPILATION_CACHE_DIR=/t2t/compiled T2T_KERAS_CACHE=/t2t/mirrors \
      .venv/bin/python -m launch.train"
  command+=" --set train.mixed_bfloat16=true"
  (($# == 0)) || command+=$(printf ' %q' "$@")
  # shellcheck disable=SC2016  # the VM's shell expands these
  command+=' &
    echo $! > ../worker.pid; wait $!; status=$?; echo $status > ../worker.status; exit $status'
  on_vm "$command"
}

# Whether the training itself ended with an error in the flags, the data or the run; gcloud's errors also have status 1.
is_mistake() {
  [[ $(on_vm 'cat worker.status' 2>/dev/null) == 1 ]]
}

train() {
  local status failed=0
  while true; do
    if up && [[ -z $stopped ]]; then
      status=0 failed=0
      stop # a training whose connection broke may still run
      [[ -z $stopped ]] || return 130
      # In the background, because this script handles signals only while it waits.
      running=1
      run "$@" &
      wait $! || status=$?
      running=''
      if ((status == 0)); then
        echo "done; $0 down deletes the VM" >&2
        return
      fi
      [[ -z $stopped ]] || return "$status"
      ! is_mistake || return 1
      echo "status $status: resuming from the last checkpoint" >&2
    elif [[ $(state) == READY ]] && ((++failed == SETUPS)); then
      echo "error: the VM is there, but setting it up failed $failed times: $0 down deletes it" >&2
      return 1
    fi
    [[ -z $stopped ]] || return 130
    sleep "$RETRY_SECONDS"
  done
}

on_signal() {
  stopped=1
  stop ${running:+60}
}

action=${1:-}
stopped='' running=''
(($# == 0)) || shift
case $action in
  up) up ;;
  train)
    trap on_signal INT TERM
    train "$@"
    ;;
  down) tpu_vm delete --quiet ;;
  *) usage ;;
esac
