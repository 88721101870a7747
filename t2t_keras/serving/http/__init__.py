"""The REST interface and its page."""
