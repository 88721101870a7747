"""Serves an exported model as TensorFlow Serving's loader does; knows nothing of Keras and of this project.

Usage: serve_v1.py OP_LIBRARY VERSION_DIR REQUESTS RESULTS. The requests are a pickled list of pairs of a signature
and its inputs by name. The results, pickled, are the outputs of each by name, or the message of its error; the bytes
by which memory grew at most for each; and modules of Keras or of this project.
"""

import os
import pathlib
import pickle
import sys

# TensorFlow imports Keras, if only to offer it as tf.keras, unless it is told to look for the old one.
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
    """A request's result, and the bytes that it took."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the largest size is from now on that of now
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
