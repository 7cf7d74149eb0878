"""A kernel in a folder, to stand in for a machine with TPU functions. `python -m tests.fakes` runs the agent there."""
