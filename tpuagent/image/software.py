"""Is the software there that a TPU machine needs, and does anybody else do the agent's work? Hands: files only."""

from __future__ import annotations

from collections.abc import Iterator

from tpuagent.host import Host
from tpuagent.image.mending import disable
from tpuagent.image.rows import NOT_CHECKED, WARNING, WRONG, Row

_BINARIES = ("/usr/bin", "/usr/local/bin", "/bin", "/snap/bin", "/usr/sbin", "/opt/google-cloud-sdk/bin")
_ENGINES = {"docker": "/run/docker.sock", "podman": "/run/podman/podman.sock"}
_LISTENS = 0x10000  # a flag in the kernel's table of sockets
# Debian 13 has the command in a package of its own; the agent needs the daemon only.
_PROGRAMS = {"docker": ("dockerd", "docker"), "podman": ("podman",)}
_UNITS = "/etc/systemd/system"
UNIT = "tpu-agent.service"
# How stock images run what the agent runs: as a unit, or as a snap.
_STOCK = ("vbarcontrolagent",)


def check_software(host: Host, *, engine_needed: bool, running: bool) -> Iterator[Row]:
    """The agent's own unit, a container engine, Python and gcloud."""
    if _is_enabled(host, UNIT):
        yield Row("tpu-agent.service", "enabled", "enabled")
    else:
        found, before = ("masked", f"systemctl unmask {UNIT}; ") if _is_masked(host, UNIT) else ("not enabled", "")
        yield Row("tpu-agent.service", "enabled", found, WRONG, f"{before}systemctl enable {UNIT}")
    yield _engine_row(host, needed=engine_needed, running=running)
    if _find(host, "python3"):
        yield Row("python3", "there", _find(host, "python3"))
    else:
        yield Row("python3", "there", "missing", WRONG, "apt-get install python3")
    gcloud = _find(host, "gcloud")
    mend = "" if gcloud else "snap install google-cloud-cli --classic"
    yield Row("gcloud", "there", gcloud) if gcloud else Row("gcloud", "there", "missing", WARNING, mend)


def _engine_row(host: Host, *, needed: bool, running: bool) -> Row:
    what, expected = "container engine", "Docker or Podman"
    if not needed:
        return Row(what, "none", "no container is configured", NOT_CHECKED)
    installed = [name for name, programs in _PROGRAMS.items() if any(_find(host, program) for program in programs)]
    masked = {name for name in installed if _is_masked(host, f"{name}.service") or _is_masked(host, f"{name}.socket")}
    answering = [name for name in _answering(host) if name not in masked] if running else []
    if answering:
        return Row(what, expected, f"{answering[0]} ({_ENGINES[answering[0]]})")
    if not installed:
        return Row(what, expected, "neither", WRONG, "apt-get install docker.io")
    if not running and (usable := [name for name in installed if name not in masked]):
        return Row(what, expected, usable[0])
    engine = installed[0]  # Docker, where both are: the documented set-up uses it
    if engine in masked:
        units = f"{engine}.service {engine}.socket"
        mend = f"systemctl unmask {units}; systemctl enable{' --now' if running else ''} {units}"
        return Row(what, expected, f"{engine} is masked", WRONG, mend)
    found = f"{engine}, and nobody listens on its socket"
    return Row(what, expected, found, WRONG, f"systemctl enable --now {engine}.socket")


def _answering(host: Host) -> list[str]:
    """The engines whose socket somebody listens on. The file alone says nothing: it stays when systemd closes it."""
    lines = [line.split() for line in (host.read("/proc/net/unix") or "").splitlines()[1:]]
    open_paths = {words[7] for words in lines if len(words) > 7 and int(words[3], 16) & _LISTENS}  # noqa: PLR2004
    return [name for name, socket in _ENGINES.items() if open_paths & {socket, f"/var{socket}"}]


def check_stock(host: Host, *, running: bool) -> Iterator[Row]:
    """Stock agents that would collide with the agent's containers."""
    found = False
    for name in _STOCK:
        unit = f"{name}.service"
        if _is_enabled(host, unit):
            found = True
            yield Row("stock vBar", "none", f"the unit {unit} is enabled", WARNING, disable(unit, running=running))
        if host.exists(f"/snap/{name}/current"):
            found = True
            yield Row("stock vBar", "none", f"the snap {name} is installed", WARNING, f"snap remove {name}")
    if not found:
        yield Row("stock vBar", "none", "none")


def _is_masked(host: Host, unit: str) -> bool:
    return "/dev/null" in (host.link(f"{_UNITS}/{unit}"), host.link(f"/run/systemd/system/{unit}"))


def _is_enabled(host: Host, unit: str) -> bool:
    if _is_masked(host, unit):
        return False
    return any(
        host.exists(f"{_UNITS}/{folder}/{unit}")
        for folder in host.names(_UNITS)
        if folder.endswith((".wants", ".requires"))
    )


def _find(host: Host, program: str) -> str:
    paths = (f"{folder}/{program}" for folder in _BINARIES)
    return next((path for path in paths if host.exists(path)), "")
