"""Fetch tpu-env and make its file say the same, and look keys up: what daemon and command both do with the server."""

from __future__ import annotations

import os
import stat

from tpuagent.errors import BadAnswer, NoSuchKey, TpuAgentError, UsageError
from tpuagent.host import Host
from tpuagent.metadata.answers import Answer, Found, IsFolder, NotDefined
from tpuagent.metadata.policy import TpuEnvPolicy
from tpuagent.metadata.seen import TpuEnvSeen
from tpuagent.metadata.server import MetadataServer
from tpuagent.metadata.tpuenv import TpuEnv, parse_tpu_env, render_second, render_tpu_env, with_aliases
from tpuagent.values import dataclass

ATTRIBUTES = "instance/attributes/"
KEY = f"{ATTRIBUTES}tpu-env"
_GKE_ATTRIBUTES = frozenset({"kube-env", "kube-labels"})
_ROOT_IDS = (0, 0)
_SECOND_MODE = 0o644
_DMI = ("/sys/class/dmi/id/product_name", "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/bios_vendor")


def open_server(host: str | None = None) -> MetadataServer:
    """The server of this machine, or the HOST or HOST:PORT that is given or that GCE_METADATA_HOST names."""
    configured = host or configured_host()
    return MetadataServer([configured]) if configured else MetadataServer()


def configured_host() -> str | None:
    """The server's HOST or HOST:PORT that the environment names, as Google's own clients take it."""
    return os.environ.get("GCE_METADATA_HOST") or None


def is_google(host: Host) -> bool:
    """Whether the firmware says that this is a virtual machine of Google's: only there a metadata server is to come."""
    return any((host.read(path) or "").startswith("Google") for path in _DMI)


def is_gke(server: MetadataServer) -> bool:
    """Whether this is a node of Google Kubernetes Engine. Raises ServerUnreachable, BadAnswer and Interrupted."""
    answer = server.get(ATTRIBUTES)
    names = answer.text("the list of attributes").split() if isinstance(answer, Found) else []
    return not _GKE_ATTRIBUTES.isdisjoint(names)


# tpu-env ----------------------------------------------------------------------------------------------------------


def refresh(host: Host, server: MetadataServer, policy: TpuEnvPolicy) -> TpuEnvSeen:
    """Fetch once and apply. Raises ServerUnreachable and Interrupted; everything else is in the result."""
    try:
        return apply(host, policy, server.get(KEY), None)
    except BadAnswer as fault:
        return TpuEnvSeen("bad", policy.path, fault.why)


def apply(host: Host, policy: TpuEnvPolicy, answer: Answer, before: TpuEnv | None) -> TpuEnvSeen:
    """Let the files say what the answer says. `before`: the last good content, which a bad answer does not change."""
    if not isinstance(answer, Found):
        state, why = ("deleted", "is no longer defined") if before else ("absent", "is not defined")
        stays = f"; {policy.path} stays as it was" if read_file(host, policy) else ""
        return TpuEnvSeen(state, policy.path, f"the attribute tpu-env {why}{stays}", before)
    try:
        content = parse_tpu_env(answer.text("the tpu-env attribute"))
    except BadAnswer as fault:
        return TpuEnvSeen("bad", policy.path, fault.why, before)
    return _write(host, policy, content)


def read_file(host: Host, policy: TpuEnvPolicy) -> bytes | None:
    """What readers find now; None when there is no file or nothing in it."""
    return host.read_bytes(policy.path) or None


def _write(host: Host, policy: TpuEnvPolicy, content: TpuEnv) -> TpuEnvSeen:
    values = with_aliases(content.values) if policy.aliases else content.values
    ids = host.user_ids(policy.owner)
    files = [_File(policy.path, render_tpu_env(values), policy.mode, *(ids or _ROOT_IDS))]
    if policy.second_path:
        files.append(_File(policy.second_path, render_second(values), _SECOND_MODE, *_ROOT_IDS))
    try:
        changed = [file for file in files if file.put(host)]
    except TpuAgentError as fault:
        return TpuEnvSeen("failed", policy.path, str(fault), content)
    reason = "" if ids else f"the file is root's: there is no user {policy.owner} (tpu_env.owner)"
    return TpuEnvSeen("written" if changed else "current", policy.path, reason, content)


@dataclass(frozen=True)
class _File:
    """A file as it should be."""

    path: str
    text: str
    mode: int
    uid: int
    gid: int

    def put(self, host: Host) -> bool:
        """Make it so; False when it is so already, and then nothing is touched. Raises TpuAgentError."""
        data = self.text.encode()
        wanted = (stat.S_IFREG | self.mode, self.uid, self.gid)
        try:
            # Not what a link leads to: the folder may be somebody's who could aim it anywhere.
            found = host.stat(self.path)
            if found and (found.st_mode, found.st_uid, found.st_gid) == wanted and host.read_bytes(self.path) == data:
                return False
            host.swap(self.path, data, self.mode, self.uid, self.gid)
        except OSError as fault:
            raise TpuAgentError(f"write {self.path}", (fault.strerror or str(fault)).lower()) from fault
        return True


# Look-up ----------------------------------------------------------------------------------------------------------


def look_up(server: MetadataServer, key: str, kind: str = "attributes", *, recursive: bool = False) -> bytes:
    """The value itself, byte by byte, of a key below instance/KIND/; for a folder the names in it, one a line.

    `recursive`: everything below the key, as the server's JSON. Raises UsageError, NoSuchKey, ServerUnreachable and
    BadAnswer.
    """
    if {".", ".."} & {*kind.split("/"), *key.split("/")}:
        raise UsageError(f"look up {key!r}", "it goes to other folders; name them as the type, like: zone '' /")
    path = "/".join(("instance", *(part for part in (kind.strip("/"), key.lstrip("/")) if part)))
    query = {"recursive": "true", "alt": "json"} if recursive else {}
    answer = server.get(path, query)
    if isinstance(answer, IsFolder):
        answer = server.get(f"{path}/", query)
    if isinstance(answer, NotDefined):
        listing = "/" if kind == "attributes" else f"/ '' {kind}"
        why = f"the metadata server has no such key; list the keys there with: tpuagent metadata {listing}"
        raise NoSuchKey(f"find {path}", why)
    if isinstance(answer, IsFolder):
        raise BadAnswer(f"get {path}", "the server sends from one folder to the next")
    return answer.body
