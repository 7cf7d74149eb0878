"""TPU functions on the PCI bus become nodes that users can open."""
