"""Text with tags and placeholders: what of it is translated, and the tags' places in the translation."""
