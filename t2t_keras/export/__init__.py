"""A translator as a SavedModel that takes strings and gives strings, for servers that know nothing of Python."""
