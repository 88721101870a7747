"""Makes the file of a SavedModel's graph smaller, without changing what the graph computes."""

import pathlib
from collections.abc import Set

from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from t2t_keras.export_contract import GRAPH_FILE


def shrink(version: pathlib.Path) -> None:
    """Rewrites the file of the graph with short names of operations, which takes about 40 % off its size.

    The names in a graph are paths of scopes, and each operation repeats those of its inputs. Only names within
    functions are shortened: signatures refer to the names of functions and of the main graph. The shapes of outputs are
    left out, because TensorFlow infers them again when it loads the graph. Operations that create a resource keep their
    names, under which TensorFlow finds the resource: two tokenizers of one name would be one.

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
    """Renames the operations of a function to numbers after a prefix that no remaining name has.

    Operations of the types `creators` keep their names.
    """
    resources = {node.name for node in function.node_def if node.op in creators}
    remaining = resources | {argument.name for argument in function.signature.input_arg}
    prefix = "n"
    while any(name.startswith(prefix) for name in remaining):
        prefix += "_"
    names = {
        node.name: node.name if node.name in resources else f"{prefix}{number}"
        for number, node in enumerate(function.node_def)
    }

    def renamed(reference: str) -> str:
        """Renames the operation in an input such as "name:output:0" or "^name"; arguments keep their names."""
        control = "^" * reference.startswith("^")
        name, colon, output = reference.removeprefix("^").partition(":")
        return f"{control}{names.get(name, name)}{colon}{output}"

    for node in function.node_def:
        node.name = names[node.name]
        node.input[:] = [renamed(reference) for reference in node.input]
        node.attr.pop("_output_shapes", None)
        node.attr.pop("_class", None)  # colocation with an operation by name; without effect on one device
    for mapping in (function.ret, function.control_ret):
        for key, reference in list(mapping.items()):
            mapping[key] = renamed(reference)
