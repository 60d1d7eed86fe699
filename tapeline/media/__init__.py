"""Images and audio as inputs of models."""
