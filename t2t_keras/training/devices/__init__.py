"""The devices that train together, and how much they can hold."""
