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


class EngineUnavailable(TpuAgentError):
    """No container engine answers: none is there, it does not run, it does not answer in time or breaks off."""

    exit_code = 23


class EngineRefused(TpuAgentError):
    """The container engine answered with an error. `status` is its HTTP status, or 0 for an error inside a stream."""

    exit_code = 24

    def __init__(self, action: str, why: str, status: int = 0) -> None:
        super().__init__(action, why)
        self.status = status


class NoSuchContainer(EngineRefused):
    """There is no container of this name, or it is gone."""

    exit_code = 25


class NameTaken(EngineRefused):
    """The engine has another container of this name."""


class ImageUnknown(EngineRefused):
    """The registry, or the engine, has no such image."""


class ImageDenied(EngineRefused):
    """The registry does not give the image to whoever asked."""


class BadCommand(EngineRefused):
    """The container's command cannot be run: it is not in the image, or is no program (126 and 127)."""


class NoSpace(EngineRefused):
    """The engine has no space left on its disk."""
