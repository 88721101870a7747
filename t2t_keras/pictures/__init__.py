"""Pictures of results: plain numbers in, PNG files out."""
