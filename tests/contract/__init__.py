"""What does a kernel with TPU functions do? The same tests run on the simulated kernel and, in a guest, on a real one.

`pytest tests/contract` runs them on two simulated kernels, one like Debian 12's and one like Debian 13's. With
`TPUAGENT_CONTRACT=real python3 -m pytest --confcutdir tests/contract tests/contract`, as root and with the agent
stopped, they run on this machine's kernel and its functions, and leave the functions as they were.
"""
