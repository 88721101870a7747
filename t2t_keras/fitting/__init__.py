"""The steps from parallel text to an exported model; completed steps are not repeated."""
