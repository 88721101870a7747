#!/usr/bin/env bash
# Prepares data on a cluster with Apache Beam. The arguments are a runner and the flags of launch.prepare_data.
#
#   FLINK_MASTER=flink:8081 launch/cluster/beam.sh flink --train_source=a.en --train_target=a.de --data_dir=/shared/mine
#   SPARK_MASTER=spark://host:7077 launch/cluster/beam.sh spark ...
#   PROJECT=mine BUCKET=mine IMAGE=registry/t2t launch/cluster/beam.sh dataflow ...
#   DRY_RUN=1 launch/cluster/beam.sh ...      prints the command instead of running it
#
# Text and --data_dir must be on a file system that this machine and all workers have mounted under the same path, and
# workers must have this package and this machine's version of Python. Flink and Spark need Java on this machine. Before
# you run the script, start a pool of Python workers on each of their machines:
#
#   python -m apache_beam.runners.worker.worker_pool_main --service_port=50000
#
# For Dataflow, run pip install 'apache-beam[gcp]' on this machine, and provide an image that contains this package and
# mounts that file system when it starts.
set -euo pipefail

# ---- settings: environment variables and their defaults --------------------------
: "${PYTHON:=.venv/bin/python}"
: "${WORKERS:=4}"                        # Flink, Spark: jobs at a time; Dataflow: machines
: "${WORKER_POOL:=localhost:50000}"      # address of the pool on each machine of Flink or Spark
: "${FLINK_MASTER:=localhost:8081}"
: "${SPARK_MASTER:=spark://localhost:7077}"
: "${PROJECT:=}"                         # this and all settings below are for Dataflow
: "${REGION:=us-central1}"
: "${BUCKET:=}"                          # for temporary files of Dataflow
: "${IMAGE:=}"
: "${MACHINE:=n2-standard-4}"
: "${DRY_RUN:=}"
# ---------------------------------------------------------------------------------

runner=${1:-}
(($# == 0)) || shift
pool=(environment_type=EXTERNAL "environment_config=$WORKER_POOL")
case $runner in
  flink)
    name=FlinkRunner
    options=("flink_master=$FLINK_MASTER" "parallelism=$WORKERS" "${pool[@]}")
    ;;
  spark)
    name=SparkRunner
    options=("spark_master_url=$SPARK_MASTER" "sdk_worker_parallelism=$WORKERS" "${pool[@]}")
    ;;
  dataflow)
    if [[ -z $PROJECT || -z $BUCKET || -z $IMAGE ]]; then
      echo "error: Dataflow needs PROJECT, BUCKET and IMAGE" >&2
      exit 1
    fi
    name=DataflowRunner
    # The number of machines is fixed. The image contains the packages, so none are sent.
    options=("project=$PROJECT" "region=$REGION" "temp_location=gs://$BUCKET/tmp" "sdk_container_image=$IMAGE"
      sdk_location=container "num_workers=$WORKERS" autoscaling_algorithm=NONE "machine_type=$MACHINE")
    ;;
  *)
    echo "usage: $0 flink | spark | dataflow FLAGS_OF_LAUNCH_PREPARE_DATA" >&2
    exit 2
    ;;
esac
list=$(IFS=,; printf '%s' "${options[*]}")
step=("$PYTHON" -m launch.prepare_data "--beam_runner=$name" "--beam_pipeline_options=$list" "$@")

if [[ -n $DRY_RUN ]]; then
  for word in "${step[@]}"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    printf '%s ' "$word"
  done
  printf '\n'
  exit
fi
exec "${step[@]}"
