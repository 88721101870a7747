"""Training with Keras on JAX: the same batches, loss, updates and checkpoints as on TensorFlow."""
