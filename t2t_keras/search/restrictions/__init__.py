"""What outputs may not have, must have, or must begin with."""
