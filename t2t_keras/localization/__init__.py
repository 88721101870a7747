"""Translators' files: finds the units to translate in a file, and writes translations into its text."""
