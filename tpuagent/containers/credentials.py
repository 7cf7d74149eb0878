"""What does a registry have to be shown? Pure.

The engine passes it on in one request: nothing of it is kept on a disk, in an argument or in a log.
"""

from __future__ import annotations

import base64
import json

_USER = "oauth2accesstoken"


def render_authorization(token: str) -> str:
    """The X-Registry-Auth header for an access token of this machine's."""
    text = json.dumps({"username": _USER, "password": token})
    return base64.urlsafe_b64encode(text.encode()).decode()
