#!/usr/bin/env bash
# Trains on Kubernetes, with one worker per pod of an indexed Job. The arguments are the flags of launch.train.
#
#   IMAGE=registry/t2t WORKERS=4 launch/cluster/kubernetes.sh --data_dir=/t2t/data/wmt14 --model_dir=/t2t/runs/wmt14 \
#       --preset=big
#   IMAGE=registry/t2t SECRET_NAME=keys launch/cluster/kubernetes.sh --data_dir=s3://mine/data \
#       --model_dir=s3://mine/run --preset=big
#   DRY_RUN=1 launch/cluster/kubernetes.sh ...      prints the manifests instead of applying them
#
# kubectl logs --follow job/t2t shows the first worker; kubectl delete job/t2t --cascade=foreground stops all of them,
# which save first. To resume, run the same command. The command does nothing while a Job of this name exists, even a
# finished one. Folders in a bucket do not need a volume. Other data must be on the volume first; README.md describes
# how to copy them.
#
# Kubernetes 1.31 or later.
set -euo pipefail

# ---- settings: environment variables and their defaults --------------------------
: "${NAME:=t2t}"                   # of the Job, its Service and its volume
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
: "${FAILURES:=6}"                 # crashes before the Job fails; preemptions do not count
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

arguments() {
  local argument
  for argument in -m launch.train "${words[@]}" "$@"; do
    printf '            - '
    quoted "$argument"
    printf '\n'
  done
}

manifests() {
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
  cat <<YAML
# Headless: gives every pod a separate name, $NAME-INDEX.$NAME, even before it is ready.
apiVersion: v1
kind: Service
metadata:
  name: $NAME
  labels: {app.kubernetes.io/name: $NAME}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {batch.kubernetes.io/job-name: $NAME}
  ports:
    - {name: workers, port: $PORT, targetPort: $PORT}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: $NAME
  labels: {app.kubernetes.io/name: $NAME}
spec:
  completionMode: Indexed
  completions: $WORKERS
  parallelism: $WORKERS
  backoffLimit: $FAILURES
  # The first worker writes the run. A pod that is restarted after that would wait for other workers in vain.
  successPolicy:
    rules:
      - succeededIndexes: "0"
  # A pod is recreated only after the old one is gone, so that two pods never have the same name.
  podReplacementPolicy: Failed
  podFailurePolicy:
    # The first matching rule applies.
    rules:
      # Preempted, evicted or drained: not a fault of the training.
      - action: Ignore
        onPodConditions: [{type: DisruptionTarget, status: "True"}]
      # 1: an error in the flags, the data or the run, which would only recur.
      - action: FailJob
        onExitCodes: {containerName: worker, operator: In, values: [1]}
      # 143: saved and stopped by SIGTERM; 75: another worker was lost. All workers start again and meet.
      - action: Ignore
        onExitCodes: {containerName: worker, operator: In, values: [75, 143]}
  template:
    metadata:
      labels: {app.kubernetes.io/name: $NAME}
    spec:
      restartPolicy: Never
      subdomain: $NAME
      terminationGracePeriodSeconds: $SAVING_SECONDS
      automountServiceAccountToken: false
${account:+      serviceAccountName: $account
}      # fsGroup lets the workers write to a new volume; for storage without this feature, see README.md.
      securityContext:
        {runAsNonRoot: true, runAsUser: $RUN_AS, runAsGroup: $RUN_AS, fsGroup: $RUN_AS,
         fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
      # Otherwise Python would be process 1, which SIGTERM does not end while it starts or waits for other workers.
      shareProcessNamespace: true
${PRIORITY_CLASS:+      priorityClassName: $PRIORITY_CLASS
}      # One worker per node.
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {batch.kubernetes.io/job-name: $NAME}
      tolerations:
        - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
      containers:
        - name: worker
          image: $IMAGE
          command: [python]
          args:
$(arguments "$@")
          env:
            # --cluster=kubernetes reads these variables, and JOB_COMPLETION_INDEX, which the Job sets.
            - {name: T2T_SERVICE, value: "$NAME"}
            - {name: T2T_WORKERS, value: "$WORKERS"}
            - {name: T2T_PORT, value: "$PORT"}
            - {name: KERAS_BACKEND, value: "$BACKEND"}
${mirrors:+            - {name: T2T_KERAS_CACHE, value: $mirrors\}
}${secret:+          envFrom:
            - secretRef: {name: $secret\}
}          ports:
            - {name: workers, containerPort: $PORT}
          resources:
            requests: {cpu: "$CPUS", memory: $MEMORY${mirrors:+, ephemeral-storage: $MIRRORS}}
            limits: {memory: $MEMORY, nvidia.com/gpu: "$GPUS"}
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
          volumeMounts:
${volume:+            - {name: storage, mountPath: /t2t\}
}${mirrors:+            - {name: mirrors, mountPath: $mirrors\}
}            - {name: shared-memory, mountPath: /dev/shm}
      volumes:
${volume:+        - name: storage
          persistentVolumeClaim: {claimName: $NAME\}
}${mirrors:+        - name: mirrors
          emptyDir: {sizeLimit: $MIRRORS\}
}        - name: shared-memory
          emptyDir: {medium: Memory, sizeLimit: $SHARED_MEMORY}
YAML
}

if [[ -n $DRY_RUN ]]; then
  manifests "$@"
else
  manifests "$@" | kubectl apply -f -
fi
