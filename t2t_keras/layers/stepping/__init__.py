"""The boxes of Figure 1 for one step of a search: one position of every hypothesis, with a cache of the past."""
