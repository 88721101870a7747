#!/usr/bin/env bash
# Trains with Kubeflow Trainer v2, with one worker per pod of a TrainJob. The arguments are the flags of launch.train.
#
#   IMAGE=registry/t2t WORKERS=4 launch/cluster/kubeflow.sh --data_dir=/t2t/data/wmt14 --model_dir=/t2t/runs/wmt14 \
#       --preset=big
#   IMAGE=registry/t2t SECRET_NAME=keys launch/cluster/kubeflow.sh --data_dir=s3://mine/data \
#       --model_dir=s3://mine/run --preset=big
#   DRY_RUN=1 launch/cluster/kubeflow.sh ...      prints the manifests instead of applying them
#
# kubectl logs --follow NAME-node-0-0-... shows the first worker; kubectl delete trainjob/t2t --cascade=foreground stops
# all workers, which save first. To resume, run the same command. Folders in a bucket do not need a volume. Other data
# must be on the volume first; README.md describes how to copy them.
#
# Kubernetes 1.31 or later, with Kubeflow Trainer 2.0 or later (trainer.kubeflow.org/v1alpha1) and its JobSet.
set -euo pipefail

# The settings are in pods.sh.
# shellcheck source=launch/cluster/pods.sh
source "$(dirname "${BASH_SOURCE[0]}")/pods.sh"

manifests() {
  volume_claim
  cat <<YAML
# The template of every worker. Trainer looks for the name "node" and the label "trainer".
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: $NAME
  labels: {app.kubernetes.io/name: $NAME}
spec:
  mlPolicy: {numNodes: $WORKERS}
  template:
    spec:
      # JobSet makes the headless Service, which has the TrainJob's name.
      network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
      # Retries happen within the Job.
      failurePolicy: {maxRestarts: 0}
      replicatedJobs:
        - name: node
          replicas: 1
          template:
            metadata:
              labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
            spec:
              completionMode: Indexed
              completions: $WORKERS
              parallelism: $WORKERS
              backoffLimit: $FAILURES
              # The first worker writes the run. A pod that is restarted after that would wait in vain.
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
                    onExitCodes: {containerName: node, operator: In, values: [1]}
                  # 143: saved and stopped by SIGTERM; 75: another worker was lost. All start again and meet.
                  - action: Ignore
                    onExitCodes: {containerName: node, operator: In, values: [75, 143]}
              template:
                metadata:
                  labels: {app.kubernetes.io/name: $NAME}
                spec:
                  restartPolicy: Never
                  terminationGracePeriodSeconds: $SAVING_SECONDS
                  automountServiceAccountToken: false
${account:+                  serviceAccountName: $account
}                  securityContext:
                    {runAsNonRoot: true, runAsUser: $RUN_AS, runAsGroup: $RUN_AS, fsGroup: $RUN_AS,
                     fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
                  # Otherwise Python would be process 1, which SIGTERM does not end while it starts.
                  shareProcessNamespace: true
${PRIORITY_CLASS:+                  priorityClassName: $PRIORITY_CLASS
}                  # One worker per node.
                  affinity:
                    podAntiAffinity:
                      requiredDuringSchedulingIgnoredDuringExecution:
                        - topologyKey: kubernetes.io/hostname
                          labelSelector:
                            matchLabels: {jobset.sigs.k8s.io/jobset-name: $NAME}
                  tolerations:
                    - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
                  containers:
                    - name: node
                      image: $IMAGE
${secret:+                      envFrom:
                        - secretRef: {name: $secret\}
}                      ports:
                        - {name: workers, containerPort: $PORT}
                      securityContext:
                        allowPrivilegeEscalation: false
                        capabilities: {drop: [ALL]}
                      volumeMounts:
${volume:+                        - {name: storage, mountPath: /t2t\}
}${mirrors:+                        - {name: mirrors, mountPath: $mirrors\}
}                        - {name: shared-memory, mountPath: /dev/shm}
                  volumes:
${volume:+                    - name: storage
                      persistentVolumeClaim: {claimName: $NAME\}
}${mirrors:+                    - name: mirrors
                      emptyDir: {sizeLimit: $MIRRORS\}
}                    - name: shared-memory
                      emptyDir: {medium: Memory, sizeLimit: $SHARED_MEMORY}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: $NAME
  labels: {app.kubernetes.io/name: $NAME}
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: TrainingRuntime, name: $NAME}
  trainer:
    numNodes: $WORKERS
    image: $IMAGE
    command: [python]
    args:
$(arguments 6 "$@")
    env:
      - {name: KERAS_BACKEND, value: "$BACKEND"}
      # --cluster=kubernetes reads these variables, and JOB_COMPLETION_INDEX, which the Job sets. The worker of an index
      # is at T2T_PODS-INDEX.T2T_SERVICE, because JobSet names a pod by TrainJob, role, Job and index.
      - {name: T2T_PODS, value: "$NAME-node-0"}
      - {name: T2T_SERVICE, value: "$NAME"}
      - {name: T2T_WORKERS, value: "$WORKERS"}
      - {name: T2T_PORT, value: "$PORT"}
${mirrors:+      - {name: T2T_KERAS_CACHE, value: $mirrors\}
}    resourcesPerNode:
      requests: {cpu: "$CPUS", memory: $MEMORY${mirrors:+, ephemeral-storage: $MIRRORS}}
      limits: {memory: $MEMORY, nvidia.com/gpu: "$GPUS"}
YAML
}

if [[ -n $DRY_RUN ]]; then
  manifests "$@"
else
  manifests "$@" | kubectl apply -f -
fi
