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

# The settings are in pods.sh.
# shellcheck source=launch/cluster/pods.sh
source "$(dirname "${BASH_SOURCE[0]}")/pods.sh"

manifests() {
  volume_claim
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
$(arguments 12 "$@")
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
