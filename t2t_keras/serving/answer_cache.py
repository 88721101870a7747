"""A cache of model outputs with bounded memory, so that repeated inputs are not run again."""

import collections
import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from t2t_keras.serving.answers import memory_of
from t2t_keras.serving.parts import check_rows, concatenated, rows_of
from t2t_keras.serving.request_errors import serving_error
from t2t_keras.serving.served_signatures import Arrays, Signature

# Memory overhead, besides the bytes of texts and numbers: per entry, and per array among its inputs and outputs.
_ENTRY_BYTES = 300
_ARRAY_BYTES = 150

# Operations that TensorFlow marks as stateful, although their outputs depend only on their inputs and the weights.
_REPEATABLE_OPERATIONS = frozenset(
    ["Assert", "Case", "If", "StatefulPartitionedCall", "While"]
    + ["HashTableV2", "LookupTableFindV2", "ReadVariableOp", "ResourceGather", "VarHandleOp"]
    + ["SentencepieceOp", "SentencepieceDetokenizeOp", "SentencepieceTokenizeOp"]
)

# The number of a signature, followed by its inputs.
_Key = tuple[Any, ...]


class AnswerCache:
    """A thread-safe LRU cache of outputs, by signature and inputs.

    Outputs of mergeable signatures are cached row by row, and only the missing rows of a request are run. Requests of
    other signatures are cached as a whole. Outputs are cached only for repeatable signatures.

    Args:
        limit: maximum memory of inputs and outputs in bytes; 0 disables the cache.
        on_rows: called for each cacheable request with the numbers of rows that were and were not in the cache.
    """

    def __init__(self, limit: int, on_rows: Callable[[int, int], None] = lambda hits, misses: None) -> None:
        self._limit = limit
        self._on_rows = on_rows
        self._lock = threading.Lock()
        self._entries: collections.OrderedDict[_Key, tuple[Arrays, int]] = collections.OrderedDict()
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def submit(
        self, signature: Signature, inputs: Arrays, rows: int, run: Callable[[Arrays, int], Future[Arrays]]
    ) -> Future[Arrays]:
        """Returns the outputs of a call, and runs only the rows that are not in the cache.

        Args:
            signature: the signature to call.
            inputs: checked arrays by name.
            rows: number of rows of the inputs.
            run: queues a call, given inputs and their number of rows. `submit` does not catch its exceptions.

        Returns:
            Future of all outputs. Cancelling it cancels the call that was queued for it.
        """
        if not inputs or not self._may_cache([signature]):
            return run(inputs, rows)
        by_row = signature.mergeable
        keys = _keys(signature, inputs, rows if by_row else 1, by_row)
        entries = self._find(keys)
        missing = [number for number, outputs in enumerate(entries) if outputs is None]
        if missing:
            subset = {name: array[missing] for name, array in inputs.items()} if len(missing) < len(keys) else inputs
            remainder = run(subset, len(missing) if by_row else rows)
            future = self._combine(keys, entries, remainder, by_row)
        else:
            future = Future()
            future.set_result(concatenated([outputs for outputs in entries if outputs is not None]))
        num_missing = len(missing) if by_row else rows * len(missing)
        self._on_rows(rows - num_missing, num_missing)
        return future

    def find(self, signatures: Sequence[Signature], inputs: Arrays) -> Arrays | None:
        """Returns the cached outputs of a one-row call, from the first of these signatures that has them.

        Returns None if there are none, or if a signature may not be cached. The lookup counts as one row for `on_rows`,
        except in the latter case.
        """
        if not self._may_cache(signatures):
            return None
        entries = self._find([_keys(signature, inputs, 1, True)[0] for signature in signatures])
        outputs = next((outputs for outputs in entries if outputs is not None), None)
        self._on_rows(int(outputs is not None), int(outputs is None))
        return outputs

    def store(self, signature: Signature, inputs: Arrays, outputs: Arrays) -> None:
        """Caches the outputs of a one-row call that was not made by `submit`, if the signature may be cached."""
        if self._may_cache([signature]):
            self._store(_keys(signature, inputs, 1, True), outputs, True)

    def _may_cache(self, signatures: Sequence[Signature]) -> bool:
        return bool(self._limit) and all(signature.repeatable for signature in signatures)

    def forget(self, signatures: Iterable[Signature]) -> None:
        numbers = {signature.number for signature in signatures}
        with self._lock:
            for key in [key for key in self._entries if key[0] in numbers]:
                self._num_bytes -= self._entries.pop(key)[1]

    def close(self) -> None:
        """Drops all entries and disables the cache."""
        with self._lock:
            self._limit = self._num_bytes = 0
            self._entries.clear()

    def _find(self, keys: Sequence[_Key]) -> list[Arrays | None]:
        """Returns the cached outputs for each key, or None, and marks the entries found as most recently used."""
        result: list[Arrays | None] = []
        with self._lock:
            for key in keys:
                entry = self._entries.get(key)
                if entry:
                    self._entries.move_to_end(key)
                result.append(entry[0] if entry else None)
        return result

    def _combine(
        self, keys: Sequence[_Key], entries: Sequence[Arrays | None], remainder: Future[Arrays], by_row: bool
    ) -> Future[Arrays]:
        """Returns a future of all outputs that completes once the missing ones have arrived from `remainder`.

        The missing outputs are added to the cache.
        """
        future: Future[Arrays] = Future()
        missing = [key for key, outputs in zip(keys, entries, strict=True) if outputs is None]

        def complete(done: Future[Arrays]) -> None:
            try:
                answer = done.result()
                self._store(missing, answer, by_row)
                if len(missing) < len(keys):
                    check_rows(answer, len(missing))
                    rows = (rows_of(answer, row, row + 1) for row in range(len(missing)))
                    answer = concatenated([next(rows) if outputs is None else outputs for outputs in entries])
            except Exception as error:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(serving_error(error))
            else:
                with contextlib.suppress(InvalidStateError):
                    future.set_result(answer)

        def cancel(done: Future[Arrays]) -> None:
            if done.cancelled() and (call := running()):
                call.cancel()

        # A weak reference, because a cycle of the two futures would keep the outputs until the garbage collector runs.
        running = weakref.ref(remainder)
        future.add_done_callback(cancel)
        remainder.add_done_callback(complete)
        return future

    def _store(self, keys: Sequence[_Key], outputs: Arrays, by_row: bool) -> None:
        """Caches the outputs of a call, unless they lack a row for some key or exceed the memory limit."""
        if not by_row:
            self._add(keys[0], outputs)
        elif all(array.shape[:1] == (len(keys),) for array in outputs.values()):
            for row, key in enumerate(keys):
                # Copied, because a view would keep a whole batch in memory.
                self._add(key, {name: array[row : row + 1].copy() for name, array in outputs.items()})

    def _add(self, key: _Key, outputs: Arrays) -> None:
        size = _ENTRY_BYTES + _ARRAY_BYTES * (len(key) - 1 + len(outputs)) + _size_of(key) + memory_of(outputs)
        with self._lock:
            if size > self._limit or key in self._entries:
                return
            self._entries[key] = outputs, size
            self._num_bytes += size
            while self._num_bytes > self._limit:
                self._num_bytes -= self._entries.popitem(last=False)[1][1]


def _keys(signature: Signature, inputs: Arrays, number: int, by_row: bool) -> list[_Key]:
    """Returns a key for each row, or one for the whole call.

    Keys hold the inputs themselves instead of a hash, because two different inputs must never be confused.
    """
    columns = []
    for _, array in sorted(inputs.items()):
        pieces = [array[row : row + 1] for row in range(number)] if by_row else [array]
        if array.dtype == object:
            columns.append([(piece.shape, *piece.reshape(-1).tolist()) for piece in pieces])
        else:
            columns.append([(piece.shape, piece.tobytes()) for piece in pieces])
    return [(signature.number, *row) for row in zip(*columns, strict=True)]


def _size_of(key: _Key) -> int:
    """Returns the bytes of the values in a key, including the overhead of their objects."""
    return sum(48 + len(value) for column in key[1:] for value in column[1:])


def repeatable(graph: meta_graph_pb2.MetaGraphDef) -> set[str]:
    """Returns the names of the signatures whose outputs depend only on their inputs and the weights.

    None of their operations is stateful, as a random number generator, a counter or a clock would be. Signatures with
    an input `seed` are excluded, because clients rarely request the same sample twice.
    """
    functions = {function.signature.name: function.node_def for function in graph.graph_def.library.function}
    operations = {node.op for node_defs in (graph.graph_def.node, *functions.values()) for node in node_defs}
    stateless = _REPEATABLE_OPERATIONS | _without_state(operations - functions.keys())
    nodes = {node.name: node for node in graph.graph_def.node}

    def scan(node_defs: Iterable[Any]) -> tuple[bool, set[str]]:
        """Returns whether all nodes are known to be stateless, and the names of the functions that they call."""
        is_stateless, calls = True, set()
        for node in node_defs:
            names = {node.op} & functions.keys()
            for value in node.attr.values():
                names |= {value.func.name} if value.HasField("func") else {func.name for func in value.list.func}
            is_stateless &= node.op in stateless or node.op in functions
            calls |= names & functions.keys()
        return is_stateless, calls

    scan_function = functools.cache(lambda name: scan(functions[name]))

    def depends_only_on_inputs(outputs: Collection[str]) -> bool:
        is_stateless, queue = scan(_dependencies(nodes, outputs))
        visited: set[str] = set()
        while is_stateless and queue - visited:
            name = (queue - visited).pop()
            visited.add(name)
            is_stateless, calls = scan_function(name)
            queue |= calls
        return is_stateless

    return {
        name
        for name, signature in graph.signature_def.items()
        if "seed" not in signature.inputs
        and depends_only_on_inputs([tensor.name for tensor in signature.outputs.values()])
    }


def _without_state(names: Iterable[str]) -> set[str]:
    """Returns the given operations that TensorFlow knows and marks as stateless."""
    # The list in a SavedModel lacks the operations of its functions, so TensorFlow describes all of them here.
    definition = tf.compat.v1.GraphDef(node=[{"name": name, "op": name} for name in names])
    with tf.Graph().as_default():
        operations = tf.compat.v1.train.export_meta_graph(graph_def=definition).meta_info_def.stripped_op_list
    return {op.name for op in operations.op if not op.is_stateful}


def _dependencies(nodes: dict[str, Any], tensors: Collection[str]) -> list[Any]:
    """Returns the nodes of a graph that the given tensors depend on."""
    queue, dependencies = list(tensors), dict[str, Any]()
    while queue:
        name = queue.pop().removeprefix("^").partition(":")[0]
        if name in nodes and name not in dependencies:
            dependencies[name] = nodes[name]
            queue += nodes[name].input
    return list(dependencies.values())
