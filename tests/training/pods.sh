# Runs a command once a pod: NAME-0 to NAME-(COUNT - 1), each with a network of its own, which know each other by the
# names that an indexed Job and a headless service NAME would give them. The status is 0 if all of theirs are.
#
#   unshare --map-root-user --mount --net --pid --fork --kill-child bash pods.sh NAME COUNT FOLDER COMMAND...
#
# Their outputs go to FOLDER/worker_INDEX.log.
set -euo pipefail
name=$1 count=$2 folder=$3
shift 3

mount -t tmpfs none /run
ip link set lo up
ip link add pods type bridge
ip link set pods up
echo 127.0.0.1 localhost >/run/hosts
for ((i = 0; i < count; i++)); do
  ip netns add "pod$i"
  ip link add "pod$i" type veth peer name eth0 netns "pod$i"
  ip link set "pod$i" master pods up
  ip -n "pod$i" address add "10.0.0.$((i + 1))/24" dev eth0
  ip -n "pod$i" link set eth0 up
  ip -n "pod$i" link set lo up
  echo "10.0.0.$((i + 1)) $name-$i.$name" >>/run/hosts
done
mount --bind /run/hosts /etc/hosts

for ((i = 0; i < count; i++)); do
  JOB_COMPLETION_INDEX=$i nsenter "--net=/run/netns/pod$i" "$@" >"$folder/worker_$i.log" 2>&1 &
  workers[i]=$!
done
status=0
for worker in "${workers[@]}"; do wait "$worker" || status=$?; done
exit "$status"
