"""Shorter names in the graph of a SavedModel still refer to the same objects."""

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from t2t_keras.export.smaller_graph import shrink


def test_all_operations_except_those_that_create_resources_are_renamed(tmp_path):
    model = SavedModel()
    meta_graph = model.meta_graphs.add()
    operation = meta_graph.meta_info_def.stripped_op_list.op.add(name="Tokenizer")
    operation.attr.add(name="shared_name")
    for side in ("source", "target"):
        function = meta_graph.graph_def.library.function.add()
        for name in ("text", "unused", "limit"):
            function.signature.input_arg.add(name=f"{side}_{name}")
        function.arg_attr[0].attr["_user_specified_name"].s = b"text"
        function.signature.output_arg.add(name="ids")
        function.signature.output_arg.add(name="lengths")
        function.signature.control_output.append(f"{side}/tokenize")
        function.node_def.add(name=f"{side}/tokenizer", op="Tokenizer")
        function.node_def.add(
            name=f"{side}/tokenize",
            op="Tokenize",
            input=[f"{side}/tokenizer:handle:0", f"{side}_text", f"{side}_limit", f"^{side}/tokenizer"],
        )
        function.ret["lengths"] = f"{side}/tokenize:splits:0"
        function.ret["ids"] = f"{side}/tokenize:values:0"
        function.control_ret[f"{side}/tokenize"] = f"{side}/tokenize"
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    shrink(tmp_path)
    model.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    for side, function in zip(("source", "target"), model.meta_graphs[0].graph_def.library.function, strict=True):
        tokenizer, tokenize = function.node_def
        text, unused, limit = (argument.name for argument in function.signature.input_arg)
        ids, lengths = (result.name for result in function.signature.output_arg)
        names = [tokenize.name, text, unused, limit, ids, lengths]
        assert len({*names, tokenizer.name}) == 7
        assert all(len(name) < 4 for name in names)
        assert tokenizer.name == f"{side}/tokenizer"
        assert list(tokenize.input) == [f"{side}/tokenizer:handle:0", text, limit, f"^{side}/tokenizer"]
        assert function.ret == {ids: f"{tokenize.name}:values:0", lengths: f"{tokenize.name}:splits:0"}
        assert list(function.signature.control_output) == [tokenize.name]
        assert function.control_ret == {tokenize.name: tokenize.name}
        assert not function.arg_attr[0].attr
