"""Exports a translator as a SavedModel that maps strings to strings, for servers without Python."""
