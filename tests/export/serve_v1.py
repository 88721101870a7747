"""Serves an exported model with TensorFlow Serving's loader, without Keras and this project.

Usage: serve_v1.py OP_LIBRARY VERSION_DIR REQUESTS RESULTS. The requests are a pickled list of pairs of a signature and
its inputs by name. The results are a pickled list: the outputs by name, or the error message, of each request; the
largest growth of memory of each in bytes; and the imported modules of Keras or of this project.
"""

import os
import pathlib
import pickle
import sys

# TensorFlow imports Keras for tf.keras, unless this variable selects the old one.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf


def main(op_library: str, version: str, requests_path: str, results_path: str) -> None:
    tf.load_op_library(op_library)
    with open(requests_path, "rb") as file:
        requests = pickle.load(file)
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], version)
        measured = [measure(session, loaded.signature_def[signature], inputs) for signature, inputs in requests]
    results, costs = [result for result, _ in measured], [cost for _, cost in measured]
    modules = sorted(name for name in sys.modules if name.split(".")[0] in ("keras", "t2t_keras"))
    with open(results_path, "wb") as file:
        pickle.dump((results, costs, modules), file)


def measure(session, signature, inputs):
    """Returns a request's result and the memory that it took, in bytes."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets the peak size
    before = resident_bytes("VmRSS")
    result = run(session, signature, inputs)
    return result, resident_bytes("VmHWM") - before


def resident_bytes(kind):
    (line,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(kind)]
    return 1024 * int(line.split()[1])


def run(session, signature, inputs):
    outputs = {name: output.name for name, output in signature.outputs.items()}
    try:
        return session.run(outputs, {signature.inputs[name].name: value for name, value in inputs.items()})
    except tf.errors.OpError as error:
        return error.message


if __name__ == "__main__":
    main(*sys.argv[1:])
