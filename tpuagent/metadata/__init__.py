"""What the metadata server says becomes files."""
