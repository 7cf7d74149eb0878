"""Is the software there that a TPU machine needs, and does anybody else do the agent's work? Hands: files only."""

from __future__ import annotations

from collections.abc import Iterator

from tpuagent.host import Host
from tpuagent.image.rows import NOT_CHECKED, WARNING, WRONG, Row

_BINARIES = ("/usr/bin", "/usr/local/bin", "/bin", "/snap/bin", "/usr/sbin", "/opt/google-cloud-sdk/bin")
_ENGINES = {"docker": "/run/docker.sock", "podman": "/run/podman/podman.sock"}
_UNITS = "/etc/systemd/system"
UNIT = "tpu-agent.service"
# How stock images run what the agent runs: as a unit, or as a snap.
_STOCK = ("vbarcontrolagent",)


def check_software(host: Host, *, engine_needed: bool, running: bool) -> Iterator[Row]:
    """The agent's own unit, a container engine, Python and gcloud."""
    if _is_enabled(host, UNIT):
        yield Row("tpu-agent.service", "enabled", "enabled")
    else:
        yield Row("tpu-agent.service", "enabled", "not enabled", WRONG, f"systemctl enable {UNIT}")
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
    installed = [name for name in _ENGINES if _find(host, name)]
    answering = [name for name, socket in _ENGINES.items() if running and host.exists(socket)]
    if answering:
        return Row(what, expected, f"{answering[0]} ({_ENGINES[answering[0]]})")
    if not installed:
        return Row(what, expected, "neither", WRONG, "apt-get install docker.io")
    if running:
        unit = f"{installed[0]}.socket"
        return Row(what, expected, f"{installed[0]}, and no socket", WRONG, f"systemctl enable --now {unit}")
    return Row(what, expected, installed[0])


def check_stock(host: Host) -> Iterator[Row]:
    """Stock agents that would collide with the agent's containers."""
    found = False
    for name in _STOCK:
        unit = f"{name}.service"
        if _is_enabled(host, unit):
            found = True
            yield Row("stock vBar", "none", f"the unit {unit} is enabled", WARNING, f"systemctl disable --now {unit}")
        if host.exists(f"/snap/{name}/current"):
            found = True
            yield Row("stock vBar", "none", f"the snap {name} is installed", WARNING, f"snap remove {name}")
    if not found:
        yield Row("stock vBar", "none", "none")


def _is_enabled(host: Host, unit: str) -> bool:
    if host.link(f"{_UNITS}/{unit}") == "/dev/null":
        return False
    return any(
        host.exists(f"{_UNITS}/{folder}/{unit}")
        for folder in host.names(_UNITS)
        if folder.endswith((".wants", ".requires"))
    )


def _find(host: Host, program: str) -> str:
    paths = (f"{folder}/{program}" for folder in _BINARIES)
    return next((path for path in paths if host.exists(path)), "")
