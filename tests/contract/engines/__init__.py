"""What does a container engine do? The same tests run on the simulated engine and on real ones.

`pytest tests/contract/engines` runs them on a simulated Docker and a simulated Podman. As root, with
`TPUAGENT_CONTRACT_ENGINE=/run/docker.sock` and pytest's `--confcutdir tests/contract/engines`, they run on the engine
behind that socket, or behind Podman's. They touch only containers with a label of their own, and leave the engine with
an image called tpu-agent.test/busybox; it is made of the program of Debian's package busybox-static. Podman also has
to be told of the registry that they start: `[[registry]]`, `location = "localhost:5010"`, `insecure = true` in a file
of /etc/containers/registries.conf.d.
"""
