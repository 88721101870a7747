"""The devices of a training, its processes, and how large a batch the devices can hold."""
