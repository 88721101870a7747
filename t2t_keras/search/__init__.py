"""From a step function to hypotheses; knows of models their contract alone."""
