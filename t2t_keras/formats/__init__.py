"""Other projects' models, read and written."""
