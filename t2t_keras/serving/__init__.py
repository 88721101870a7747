"""A server of SavedModels with TensorFlow Serving's REST and gRPC interfaces, for machines without TensorFlow Serving.

From the inside out: `served_signatures` and `served_models` run a SavedModel, `versions` finds versions and replaces
the served ones, `configured_models` has the versions of each model, `batcher` merges concurrent requests, `core` is the
server without a network, `http.rest` and `grpc_service` are its two front ends, and `server` starts and stops
everything.
"""
