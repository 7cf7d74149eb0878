"""Who is this machine for Google's services? Hands: asks the metadata server for its service account."""

from __future__ import annotations

import json
from collections.abc import Callable

from tpuagent.errors import BadAnswer, NoSuchKey, TpuAgentError
from tpuagent.metadata.answers import Found
from tpuagent.metadata.server import MetadataServer

_ACCOUNT = "instance/service-accounts/default"
# Each of them lets an account that may read images do so.
_SCOPES = ("cloud-platform", "devstorage.read_only", "devstorage.read_write", "devstorage.full_control")
_SCOPE = "https://www.googleapis.com/auth/"


class ServiceAccount:
    """The default service account. Nothing of it is kept: a token is fetched when it is needed."""

    def __init__(self, open_server: Callable[[], MetadataServer]) -> None:
        self._open_server = open_server

    def token(self) -> str:
        """An access token. Raises ServerUnreachable, NoSuchKey (there is no account) and BadAnswer."""
        text = self._get("token")
        try:
            token = json.loads(text)["access_token"]
        except (ValueError, TypeError, KeyError):
            raise BadAnswer("use the token of the service account", "it is not what a token looks like") from None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise BadAnswer("use the token of the service account", "it is not what a token looks like")
        return token

    def describe(self) -> str:
        """The account and what it lacks, for an operator whom a registry has refused."""
        try:
            email, scopes = self._get("email").strip(), self._get("scopes").split()
        except TpuAgentError as fault:
            return f"its service account is not known: {fault.why}"
        if not {f"{_SCOPE}{name}" for name in _SCOPES} & set(scopes):
            return (
                f"it was asked as {email}, and the access scopes of this VM do not allow it;"
                " stop the VM and give it the scope cloud-platform"
            )
        return f"it was asked as {email}; give that account the role roles/artifactregistry.reader there"

    def _get(self, key: str) -> str:
        action = "use the VM's service account"
        answer = self._open_server().get(f"{_ACCOUNT}/{key}")
        if not isinstance(answer, Found):
            raise NoSuchKey(action, "this VM has none; give it one with the scope cloud-platform")
        return answer.text(f"the service account's {key}")
