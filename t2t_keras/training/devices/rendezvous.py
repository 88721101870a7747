"""Makes workers wait for each other before TensorFlow starts.

TensorFlow would wait in C++ for an hour, print nothing and not react to signals.
"""

import contextlib
import socket
import time

from t2t_keras.errors import InputError, explained
from t2t_keras.machine.standard_error import tell
from t2t_keras.training.devices.cluster import Cluster, WorkerLostError

SILENCE = 30  # seconds before the missing workers are printed
PATIENCE = 3600  # whole seconds; a cluster may first have to allocate machines and pull images
_PAUSE = 0.2


def wait_for_all(cluster: Cluster, patience: float = PATIENCE, silence: float = SILENCE) -> None:
    """Returns once every worker has started and can be reached.

    Each worker listens on its own port until it has reached all others. After that, later workers reach TensorFlow's
    server on the same port.

    Args:
        cluster: the workers.
        patience: seconds to wait for all workers.
        silence: seconds after which the missing workers are printed.

    Raises:
        InputError: this worker cannot listen on its port, or an address is not host:port.
        WorkerLostError: a worker could not be reached within `patience` seconds.
    """
    start = time.monotonic()
    missing = {index: address for index, address in enumerate(cluster.addresses) if index != cluster.index}
    is_silent = True
    with _listen(cluster):
        while missing:
            missing = {index: address for index, address in missing.items() if not _answers(address)}
            waited = time.monotonic() - start
            names = ", ".join(f"{index} ({address})" for index, address in missing.items())
            if missing and waited > patience:
                raise WorkerLostError(
                    f"worker {cluster.index} did not meet worker {names} in {waited / 60:.0f} minutes"
                )
            if missing and waited > silence and is_silent:
                tell(f"worker {cluster.index} waits for worker {names}")
                is_silent = False
            if missing:
                time.sleep(_PAUSE)


def _listen(cluster: Cluster) -> socket.socket:
    _, port = _host_and_port(cluster.addresses[cluster.index])
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    with explained(f"worker {cluster.index} cannot listen on port {port}"):
        return socket.create_server(("", port), family=family, backlog=len(cluster.addresses), dualstack_ipv6=is_dual)


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(_host_and_port(address), timeout=5):
        return True
    return False


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise InputError(f"{address!r} is not the host:port of a worker")
    return host.strip("[]"), int(port)
