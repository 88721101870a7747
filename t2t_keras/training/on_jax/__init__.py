"""Training with Keras on JAX, with the same batches, loss, updates and checkpoints as on TensorFlow."""
