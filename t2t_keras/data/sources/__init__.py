"""Where parallel text comes from."""
