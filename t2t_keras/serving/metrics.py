"""The server's metrics for Prometheus."""

import collections
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.registry import Collector

from t2t_keras.serving.request_errors import ServingError, serving_error

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# Label of unknown models and signatures, because names sent by clients must not create labels without limit.
_UNKNOWN = "unknown"


# TensorFlow Serving's names, labels and buckets (in microseconds), so that its dashboards and alerts also work here.
_TF_SERVING_REQUESTS = ":tensorflow:serving:request_count"
_TF_SERVING_LATENCY = ":tensorflow:serving:request_latency"
_TF_SERVING_BUCKETS = tuple(10 * 1.8**power for power in range(33))

_KINDS: tuple[Any, ...] = (Counter, Gauge, Histogram)


class Call:
    """A request that is being measured.

    Attributes:
        model: name of the model; set it once the model is known to exist.
        signature: name of the signature; set it once the signature is known to exist.
        start: monotonic start time in seconds.
    """

    def __init__(self) -> None:
        self.model = self.signature = _UNKNOWN
        self.start = time.monotonic()

    def restart_clock(self) -> None:
        """Restarts the clock, so that the latency excludes the time that the client takes to send its request."""
        self.start = time.monotonic()


class _TfServingRequests(Collector):
    """Requests by outcome under TensorFlow Serving's name, which lacks the suffix `_total` of Prometheus counters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()

    def inc(self, model: str, outcome: str) -> None:
        with self._lock:
            self._counts[model, outcome] += 1

    def collect(self) -> Iterator[Metric]:
        metric = Metric(_TF_SERVING_REQUESTS, "Requests answered, by outcome.", "unknown")
        with self._lock:
            counts = dict(self._counts)
        for (model, outcome), count in counts.items():
            metric.add_sample(_TF_SERVING_REQUESTS, {"model_name": model, "status": outcome}, count)
        yield metric


class Metrics:
    """Prometheus metrics of one server, in a separate registry so that several servers can run in one process."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        counter, gauge, histogram = (functools.partial(kind, registry=self.registry) for kind in _KINDS)
        names = ["interface", "signature", "outcome"]
        self._requests = counter("t2t_serving_requests", "Requests answered, by outcome.", names)
        text = "Seconds from the end of reading a request to its response."
        self._latency = histogram("t2t_serving_latency_seconds", text, ["signature"], buckets=_SECONDS)
        names = ["model_name", "API", "entrypoint"]
        text = "Microseconds from the end of reading a request to its response."
        self._tf_serving_latency = histogram(_TF_SERVING_LATENCY, text, names, buckets=_TF_SERVING_BUCKETS)
        self._tf_serving_requests = _TfServingRequests()
        self.registry.register(self._tf_serving_requests)
        self._batches = histogram("t2t_serving_batch_sentences", "Sentences in a batch.", buckets=_ROWS)
        self._sentences = counter("t2t_serving_sentences", "Sentences run.")
        self._queue = gauge("t2t_serving_queue_sentences", "Queued sentences.")
        text = "Bytes of queued text, including an overhead per sentence."
        self._queue_bytes = gauge("t2t_serving_queue_bytes", text)
        self._streams = gauge("t2t_serving_streams", "Translations that are being streamed.")
        text = "Bytes of large responses that clients have not read yet."
        self._unsent_bytes = gauge("t2t_serving_unsent_bytes", text)
        self._cache_hits = counter("t2t_serving_cache_hits", "Sentences whose outputs were in the cache.")
        text = "Sentences whose outputs were not in the cache, but may be cached."
        self._cache_misses = counter("t2t_serving_cache_misses", text)
        self._cache_bytes = gauge("t2t_serving_cache_bytes", "Size of the cache of outputs in bytes.")
        text = "Connections and requests refused before they reached a model, by reason."
        self._refusals = counter("t2t_serving_refusals", text, ["interface", "reason"])
        text = "The latest served version of the first model; 0 means none."
        self._version = gauge("t2t_serving_version", text)
        # Cached, because looking up labels takes several times as long as updating a metric.
        self._child = functools.cache(lambda metric, *labels: metric.labels(*labels))

    def watch(
        self,
        waiting: Callable[[], int],
        waiting_bytes: Callable[[], int],
        unsent_bytes: Callable[[], int],
        cache_bytes: Callable[[], int],
        version: Callable[[], int | None],
    ) -> None:
        """Sets functions that each scrape calls for the current values of gauges.

        Args:
            waiting: returns the number of queued sentences.
            waiting_bytes: returns the bytes of queued text, including an overhead per sentence.
            unsent_bytes: returns the bytes of large responses that clients have not read.
            cache_bytes: returns the size of the output cache.
            version: returns the latest served version of the first model, or None.
        """
        self._queue.set_function(waiting)
        self._queue_bytes.set_function(waiting_bytes)
        self._unsent_bytes.set_function(unsent_bytes)
        self._cache_bytes.set_function(cache_bytes)
        self._version.set_function(lambda: version() or 0)

    def batch(self, rows: int) -> None:
        self._batches.observe(rows)
        self._sentences.inc(rows)

    def refusal(self, interface: str, reason: str) -> None:
        """Counts a refusal; see `Refusals`."""
        self._refusals.labels(interface, reason).inc()

    def stream(self) -> contextlib.AbstractContextManager[None]:
        """Counts a `:stream` response as active while the block runs."""
        return self._streams.track_inprogress()

    def cache(self, hits: int, misses: int) -> None:
        """Counts the sentences of a request that were found in the cache, and those that were missing."""
        self._cache_hits.inc(hits)
        self._cache_misses.inc(misses)

    @contextlib.contextmanager
    def request(self, interface: str, method: str) -> Iterator[Call]:
        """Counts and times the block as a request. The block sets the model and signature of the yielded `Call`.

        Args:
            interface: "rest" or "grpc".
            method: method of the interface, such as "Predict".

        Raises:
            ServingError: any exception that leaves the block, converted for the client.
        """
        call, outcome = Call(), "OK"
        try:
            yield call
        except ServingError as error:
            # Not raised from itself: the reference cycle would keep large outputs until the garbage collector runs.
            outcome = error.code.name
            raise
        except Exception as error:
            outcome = serving_error(error).code.name
            raise serving_error(error) from error
        except BaseException:
            # Cancelled because the client has disconnected.
            outcome = "CANCELLED"
            raise
        finally:
            seconds = time.monotonic() - call.start
            self._child(self._requests, interface, call.signature, outcome).inc()
            self._tf_serving_requests.inc(call.model, outcome)
            if outcome == "OK":
                self._child(self._latency, call.signature).observe(seconds)
                self._child(self._tf_serving_latency, call.model, method, interface.upper()).observe(1e6 * seconds)

    def text(self) -> bytes:
        """Returns all metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.registry)
