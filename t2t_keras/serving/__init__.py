"""Serves SavedModels through TensorFlow Serving's REST and gRPC interfaces, on machines without TensorFlow Serving.

From the inside out: `served_signatures` and `served_models` run a SavedModel. `versions` detects new versions and swaps
them in. `configured_models` holds the versions of every model. `batcher` merges concurrent requests. `core` is the
server without a network. `http.rest` and `grpc_service` are its two front ends. `server` starts and stops everything.
"""
