"""Studies, which reproduce the tables of the paper row by row on the user's own data."""
