"""A server of SavedModels with TensorFlow Serving's own REST and gRPC interfaces, for machines without it.

From the inside out: `signatures` and `models` run a SavedModel, `versions` finds
and swaps them, `batcher` merges what arrives together, `core` is the server
without a network, `rest` and `grpc_service` are its two front ends, `server`
starts and stops it all.
"""
