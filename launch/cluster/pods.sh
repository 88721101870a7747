# The settings of kubernetes.sh and kubeflow.sh, and the parts of the manifests that they share. Both scripts source
# this file.
# shellcheck shell=bash disable=SC2034 # the scripts use the variables

# ---- settings: environment variables and their defaults --------------------------
: "${NAME:=t2t}"                   # of the job and its volume
: "${IMAGE:=t2t_keras}"            # made with launch/cluster/Dockerfile
: "${WORKERS:=2}"                  # number of pods, one per node
: "${GPUS:=8}"                     # of each pod
: "${CPUS:=32}"                    # of each pod
: "${MEMORY:=128Gi}"               # of each pod
: "${SHARED_MEMORY:=16Gi}"         # of each pod, for NCCL; a part of MEMORY
: "${PORT:=2222}"                  # for communication between workers
: "${RUN_AS:=1000}"                # user and group of the workers, which write to the volume; the image has 1000
: "${STORAGE:=500Gi}"              # of the volume, mounted at /t2t
: "${STORAGE_CLASS:=}"             # must offer ReadWriteMany; empty: the cluster's default
: "${PRIORITY_CLASS:=}"            # with a low one, other work preempts the training; empty: the cluster's default
: "${SAVING_SECONDS:=300}"         # from SIGTERM to SIGKILL; a checkpoint must be written within this time
: "${BACKEND:=tensorflow}"         # or jax, if the image has it: pip install '.[jax]' 'jax[cuda12]'
: "${FAILURES:=6}"                 # crashes before the job fails; preemptions do not count
: "${MIRRORS:=100Gi}"              # on the disk of each pod, for data and checkpoints of a bucket
: "${SECRET_NAME:=}"               # of a Secret for the bucket, whose keys become variables, such as AWS_ACCESS_KEY_ID
: "${SERVICE_ACCOUNT:=}"           # with access to the bucket; if both are empty, pods have the access of their nodes
: "${DRY_RUN:=}"
# ---------------------------------------------------------------------------------

case $BACKEND in
  tensorflow) words=(--strategy=multiworker --cluster=kubernetes) ;;
  jax) words=(--cluster=kubernetes) ;;
  *)
    echo "error: BACKEND is tensorflow or jax, not $BACKEND" >&2
    exit 1
    ;;
esac

# Folders in a bucket are mirrored on the disk of each pod; other folders are on the volume. A run may use both.
mirrors='' volume='' flag=''
for word in "$@"; do
  word=$flag$word flag=''
  case $word in
    --data_dir | --model_dir | --init_from) flag=$word= ;;
    # A path like any other.
    --data_dir=file:* | --model_dir=file:* | --init_from=file:*) volume=1 ;;
    --data_dir=*://* | --model_dir=*://* | --init_from=*://*) mirrors=/mirrors ;;
    --data_dir=/* | --model_dir=/* | --init_from=/* | *=/t2t/* | /t2t/*) volume=1 ;;
    # The folder would be inside the container, and would be lost with its pod.
    --data_dir=* | --model_dir=* | --init_from=*)
      printf 'error: %s is a relative path: give one on the volume, below /t2t, or in a bucket\n' "$word" >&2
      exit 1
      ;;
  esac
done
[[ -n $mirrors ]] || volume=1
secret=${mirrors:+$SECRET_NAME} account=${mirrors:+$SERVICE_ACCOUNT}

# Quotes any string for YAML: single quotes, doubled inside.
quoted() {
  local text=${1//\'/\'\'}
  printf "'%s'" "$text"
}

# Prints the command's arguments as a YAML list, indented by $1 spaces. The other arguments are the flags.
arguments() {
  local indent=$1 argument
  shift
  for argument in -m launch.train "${words[@]}" "$@"; do
    printf '%*s- ' "$indent" ''
    quoted "$argument"
    printf '\n'
  done
}

# Prints the manifest of the volume, if the training needs one.
volume_claim() {
  [[ -z $volume ]] || cat <<YAML
# All workers share one folder for data and runs; the first worker writes the run.
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: $NAME
  labels: {app.kubernetes.io/name: $NAME}
spec:
  accessModes: [ReadWriteMany]
${STORAGE_CLASS:+  storageClassName: $STORAGE_CLASS
}  resources:
    requests: {storage: $STORAGE}
---
YAML
}
