"""Which faults can a caller tell apart, and which exit code does each one have?

Every message reads "cannot <do what> to <which>: <why>; <next step> (<ERRNO>)". This module is imported by every
command, so it imports nothing.
"""


class TpuAgentError(Exception):
    """A fault that an operator can act on. `exit_code` is what the command ends with.

    `action` completes "cannot …"; `why` is the cause and the next step, and stands alone in a table or a status line.
    """

    exit_code = 1

    def __init__(self, action: str, why: str) -> None:
        super().__init__(f"cannot {action}: {why}")
        self.action = action
        self.why = why


class UsageError(TpuAgentError):
    """What was typed is not an address, or the arguments contradict each other."""

    exit_code = 2


class NoSuchFunction(TpuAgentError):
    """No PCI function has the address."""

    exit_code = 10


class NotATpu(TpuAgentError):
    """The function is there, but is none that the agent may touch."""

    exit_code = 11


class InUse(TpuAgentError):
    """A process holds the function, or the kernel still waits for one to let it go."""

    exit_code = 12


class NoIommu(TpuAgentError):
    """The function has no IOMMU group, or one that cannot be given to a user."""

    exit_code = 13


class ModuleUnavailable(TpuAgentError):
    """A kernel module or a parameter of it could not be had."""

    exit_code = 14


class RefusedByKernel(TpuAgentError):
    """The kernel answered a step with an error, or took the step and did not do it."""

    exit_code = 15


class NodeFault(TpuAgentError):
    """The device node did not appear, or its owner or mode could not be set."""

    exit_code = 16


class DeadlinePassed(TpuAgentError):
    """The kernel, or another pass of the agent, did not answer in time."""

    exit_code = 17


class PartlyDone(TpuAgentError):
    """Of several functions some were done and some not, or they failed for different reasons."""

    exit_code = 18


class NotPermitted(TpuAgentError):
    """The caller is not root, or sysfs is read-only here."""

    exit_code = 77


class ConfigError(TpuAgentError):
    """A configuration file says something the agent does not understand."""

    exit_code = 78


class NoSuchKey(TpuAgentError):
    """The metadata server answered, and has no such key."""

    exit_code = 20


class ServerUnreachable(TpuAgentError):
    """Nobody answered as the metadata server does: not at all, not in time, with an error, or as somebody else."""

    exit_code = 21


class BadAnswer(TpuAgentError):
    """The metadata server's answer is genuine and cannot be used."""

    exit_code = 22
