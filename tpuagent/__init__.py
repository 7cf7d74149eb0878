"""tpu-agent: the on-host boot agent of Cloud TPU virtual machines."""

__version__ = "0.1.0"
