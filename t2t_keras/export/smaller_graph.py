"""Makes the file of a SavedModel's graph smaller, without changing what the graph computes."""

import pathlib
from collections.abc import Set

from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from t2t_keras.export_contract import GRAPH_FILE


def shrink(version: pathlib.Path) -> None:
    """Rewrites the file of the graph with short names, which halves its size.

    The names in a graph are paths of scopes, and each operation repeats those of its inputs. Only names within
    functions are shortened: signatures refer to the names of functions and of the main graph. The shapes of outputs are
    left out, because TensorFlow infers them again when it loads the graph. Operations that create a resource keep their
    names, under which TensorFlow finds the resource; otherwise, two tokenizers could become one.

    Args:
        version: directory of the SavedModel.
    """
    path = version / GRAPH_FILE
    model = SavedModel()
    model.ParseFromString(path.read_bytes())
    for meta_graph in model.meta_graphs:
        for node in meta_graph.graph_def.node:
            node.attr.pop("_output_shapes", None)
        operations = meta_graph.meta_info_def.stripped_op_list.op
        creators = {op.name for op in operations if any(attr.name == "shared_name" for attr in op.attr)}
        for function in meta_graph.graph_def.library.function:
            _shorten(function, creators)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _shorten(function: FunctionDef, creators: Set[str]) -> None:
    """Renames the operations, arguments and results of a function to numbers after a prefix that no other name has.

    Operations of the types `creators` keep their names. Callers refer to arguments and results by position.
    """
    resources = {node.name for node in function.node_def if node.op in creators}
    prefix = "n"
    while any(name.startswith(prefix) for name in resources):
        prefix += "_"
    arguments = function.signature.input_arg
    others = [*(node.name for node in function.node_def), *(argument.name for argument in arguments)]
    names = {name: name if name in resources else f"{prefix}{number}" for number, name in enumerate(others)}

    def renamed(reference: str) -> str:
        """Renames the operation or the argument in a reference such as "name:output:0", "name" or "^name"."""
        control = "^" * reference.startswith("^")
        name, colon, output = reference.removeprefix("^").partition(":")
        return f"{control}{names[name]}{colon}{output}"

    for node in function.node_def:
        node.name = names[node.name]
        node.input[:] = [renamed(reference) for reference in node.input]
        node.attr.pop("_output_shapes", None)
        node.attr.pop("_class", None)  # colocation with an operation by name; without effect on one device
    for number, argument in enumerate(arguments):
        argument.name = names[argument.name]
        function.arg_attr[number].attr.pop("_user_specified_name", None)
    results = [renamed(function.ret.pop(result.name)) for result in function.signature.output_arg]
    for number, (result, reference) in enumerate(zip(function.signature.output_arg, results, strict=True)):
        result.name = f"{prefix}r{number}"
        function.ret[result.name] = reference
    control = sorted(renamed(reference) for reference in function.control_ret.values())
    function.control_ret.clear()
    function.signature.control_output[:] = control
    for name in control:
        function.control_ret[name] = name
