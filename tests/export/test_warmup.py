import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from t2t_keras.export.warmup import warmup_records
from t2t_keras.export_contract import SIGNATURES
from t2t_keras.serving import served_models
from t2t_keras.tasks.registry import task


def test_warmup_lines_contain_the_symbol_that_the_task_requires():
    answering = task("question_answering")
    functions = {name: lambda text: {} for name in SIGNATURES}
    records = map(prediction_log_pb2.PredictionLog.FromString, warmup_records("a", functions, answering.context))
    inputs = [record.predict_log.request.inputs for record in records]
    lines = [
        line
        for request_inputs in inputs
        if "text" in request_inputs
        for line in tf.make_ndarray(request_inputs["text"])
    ]
    assert len(lines) > 10
    for line in (*lines, served_models._PROBE):
        answering.check_source(line.decode())
