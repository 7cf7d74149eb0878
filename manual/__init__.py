"""What can be configured? One description of every key, and all that is written of it: a page, a manual, a schema."""
