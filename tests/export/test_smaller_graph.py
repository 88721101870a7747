"""Shorter names in the graph of a SavedModel, which must still name the same things."""

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from t2t_keras.export.smaller_graph import shrink


def test_operations_are_renamed_except_those_that_create_resources(tmp_path):
    model = SavedModel()
    meta_graph = model.meta_graphs.add()
    operation = meta_graph.meta_info_def.stripped_op_list.op.add(name="Tokenizer")
    operation.attr.add(name="shared_name")
    for side in ("source", "target"):
        function = meta_graph.graph_def.library.function.add()
        function.signature.input_arg.add(name="text")
        function.node_def.add(name=f"{side}/tokenizer", op="Tokenizer")
        function.node_def.add(
            name=f"{side}/tokenize", op="Tokenize", input=[f"{side}/tokenizer:handle:0", "text", f"^{side}/tokenizer"]
        )
        function.ret["ids"] = f"{side}/tokenize:values:0"
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    shrink(tmp_path)
    model.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    functions = model.meta_graphs[0].graph_def.library.function
    for side, function in zip(("source", "target"), functions, strict=True):
        tokenizer, tokenize = function.node_def
        assert tokenizer.name == f"{side}/tokenizer"
        assert len(tokenize.name) < 4
        assert list(tokenize.input) == [f"{side}/tokenizer:handle:0", "text", f"^{side}/tokenizer"]
        assert function.ret["ids"] == f"{tokenize.name}:values:0"
