"""The files of models: tensors, settings, downloads."""
