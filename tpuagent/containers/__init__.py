"""vBar and telemetry run, and keep running: a wing of the agent."""
