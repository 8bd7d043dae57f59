"""From a model's SQL text to a typed relation over sources and other models."""
