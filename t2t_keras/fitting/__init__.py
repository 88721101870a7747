"""From parallel text to an exported model, in steps that are each done once."""
