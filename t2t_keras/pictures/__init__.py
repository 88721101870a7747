"""Pictures of results: arrays and names in, files out; no model is known here."""
