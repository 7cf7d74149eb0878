"""The commands that a person types, a module for each part of the agent; imported only when one of them is run."""
