"""Reads and writes files of models: tensors, settings and downloads."""
