"""What a good image looks like: its settings, and the check of them: a wing of the command."""
