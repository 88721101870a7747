"""Documents with tags and placeholders: extracts the text to translate, and places the markup in translations."""
