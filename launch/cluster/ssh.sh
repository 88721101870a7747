#!/usr/bin/env bash
# Trains on hosts over ssh, with one worker per host. The arguments are the flags of launch.train.
#
#   HOSTS="gpu1 gpu2" launch/cluster/ssh.sh --data_dir=/shared/data/wmt14 --model_dir=/shared/runs/wmt14 --preset=big
#   DRY_RUN=1 HOSTS=... launch/cluster/ssh.sh ...      prints the commands instead of running them
#
# The hosts must reach each other by these names, have this repository in the same place and share --model_dir and
# --data_dir. ssh must not ask for a password. The output of each worker is appended to LOGS/HOST.log. Ctrl-C, SIGTERM
# and a closed terminal stop all workers, which save first. If one worker fails, the others are stopped. Run the same
# command to resume.
set -euo pipefail
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501)); then # "wait -n -p"
  echo "error: bash 5.1 or later is needed, this is $BASH_VERSION" >&2
  exit 1
fi

# ---- settings: environment variables and their defaults --------------------------
: "${HOSTS:?the names of the hosts, the first of which writes the run: HOSTS=\"gpu1 gpu2\"}"
: "${DIRECTORY:=$PWD}"            # the repository, on every host
: "${PYTHON:=.venv/bin/python}"   # on every host, relative to DIRECTORY
: "${BACKEND:=${KERAS_BACKEND:-tensorflow}}"  # or jax, of .[jax] and jax[cuda12] on every host
: "${PORT:=2222}"                 # for communication between workers
: "${LOGS:=logs}"                 # a folder here
: "${SSH:=ssh -o BatchMode=yes -o ServerAliveInterval=15}"
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

read -ra hosts <<<"$HOSTS"
read -ra ssh <<<"$SSH"
addresses=$(printf '"%s:'"$PORT"'", ' "${hosts[@]}")
addresses="[${addresses%, }]"
# On every host: the worker's process id, so that it can be stopped; a signal to ssh here would not reach it.
pid_file="/tmp/t2t_worker_${PORT}_$$"

# Prints a command, quoted for a shell.
show() {
  local word
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    printf '%s ' "$word"
  done
  printf '\n'
}

# Prints the command of host number $1; the other arguments are the flags.
worker_command() {
  local index=$1
  shift
  local config="{\"cluster\": {\"worker\": $addresses}, \"task\": {\"type\": \"worker\", \"index\": $index}}"
  printf 'cd %q && echo $$ > %q && ' "$DIRECTORY" "${pid_file}_$index"
  printf 'exec env KERAS_BACKEND=%s TF_CONFIG='\''%s'\'' %q -m launch.train' "$BACKEND" "$config" "$PYTHON"
  printf ' %q' "${words[@]}" --cluster=tf_config "$@"
}

if [[ -n $DRY_RUN ]]; then
  for index in "${!hosts[@]}"; do
    show "${ssh[@]}" "${hosts[index]}" "$(worker_command "$index" "$@")"
  done
  exit
fi

# A worker that is still starting gets some seconds to finish; otherwise it would wait for the other workers forever.
stop_all() {
  echo "stopping all workers" >&2
  local index file
  for index in "${!hosts[@]}"; do
    file=${pid_file}_$index
    "${ssh[@]}" "${hosts[index]}" "for i in 1 2 3 4 5; do test -e $file && break; sleep 1; done
      kill -TERM \$(cat $file) 2>/dev/null; rm -f $file" </dev/null || true &
  done
}

mkdir -p "$LOGS"
running=0
for index in "${!hosts[@]}"; do
  "${ssh[@]}" "${hosts[index]}" "$(worker_command "$index" "$@")" </dev/null >>"$LOGS/${hosts[index]}.log" 2>&1 &
  names[$!]=${hosts[index]}
  running=$((running + 1))
done
echo "$running workers started, output in $LOGS/: ${hosts[*]}" >&2
is_stopping=''
trap 'is_stopping=1; stop_all' INT TERM
trap 'exec 2>/dev/null; is_stopping=1; stop_all' HUP # the terminal is closed

result=0
while ((running)); do
  ended=''
  status=0
  wait -n -p ended "${!names[@]}" || status=$?
  [[ -n ${ended:-} ]] || continue # a signal arrived: `ended` is unset, and the handler has run
  running=$((running - 1))
  echo "${names[ended]}: status $status" >&2
  unset "names[ended]"
  if ((status && !result)); then
    result=$status
    [[ -n $is_stopping ]] || ((!running)) || stop_all
  fi
done
exit "$result"
