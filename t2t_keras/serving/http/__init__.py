"""The REST interface and the web page."""
