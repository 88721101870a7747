"""From a step function to translations: search state, scores, beam search, and text in and out."""
