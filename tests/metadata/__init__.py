"""Tests of what comes from the metadata server."""
