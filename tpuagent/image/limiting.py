"""Which limits do new sessions and new services get? Hands: reads the host, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tpuagent.host import Host
from tpuagent.image import dropins, pamlimits, settings
from tpuagent.image.mending import comment_out, restore, switched_off
from tpuagent.image.rows import WARNING, WRONG, Row

Ask = Callable[[str], str | None]
_LIMITS_CONF = "/etc/security/limits.conf"
_PAM = "/etc/pam.d"
_SESSIONS = ("sshd", "login")
_MOST_INCLUDES = 8
_INFINITY = str((1 << 64) - 1)


def check_sessions(host: Host) -> Iterator[Row]:
    """What PAM gives who logs in."""
    lines = tuple(_session_lines(host))
    for item, least in _wanted():
        for user, title in (("any user", "users"), ("root", "root")):
            # `any user` can be nobody's name, so only `*` is about it.
            yield _session_row(host, lines, item, least, user, title)
        for line in pamlimits.others(lines, item):
            if not pamlimits.Effective(line).reaches(least):
                found = f"{_shown(line)} ({line.origin})"
                yield Row(f"session {line.domain}: {item}", _text(least), found, WARNING, comment_out([line.origin]))
    for service in _SESSIONS:
        if host.exists(f"{_PAM}/{service}") and not _applies_limits(host, service, _MOST_INCLUDES):
            mend = f"echo 'session required pam_limits.so' >>{_PAM}/{service}"
            yield Row(f"PAM: {service}", "pam_limits", "limits.d is not applied", WRONG, mend)


def _session_row(
    host: Host, lines: tuple[pamlimits.Line, ...], item: str, least: int | None, user: str, title: str
) -> Row:
    what = f"session {title}: {item}"
    kinds = [pamlimits.effective(lines, user, (), item, kind) for kind in ("soft", "hard")]
    worse = [one for one in kinds if not one.reaches(least)]
    if not worse:
        soft = kinds[0].line
        return Row(what, _text(least), _shown(soft) if soft else "")
    line = worse[0].line
    if line is None:
        verdict = WARNING if switched_off(host, settings.LIMITS_FILE) else WRONG
        return Row(what, _text(least), "no line says anything", verdict, restore(host, settings.LIMITS_FILE))
    found = f"{_shown(line)} ({line.origin})"
    mend = comment_out(
        one.origin for one in pamlimits.about(lines, user, item) if not pamlimits.Effective(one).reaches(least)
    )
    return Row(what, _text(least), f"{found}; {line.fault}" if line.fault else found, WRONG, mend)


def _session_lines(host: Host) -> Iterator[pamlimits.Line]:
    folder = "/etc/security/limits.d"
    paths = [_LIMITS_CONF, *(f"{folder}/{name}" for name in host.names(folder) if name.endswith(".conf"))]
    for path in paths:
        yield from pamlimits.parse_limits(host.read(path) or "", path)


def _applies_limits(host: Host, service: str, depth: int) -> bool:
    """Whether a PAM service, with what it includes, has pam_limits among its session modules."""
    for _, line in dropins.logical_lines(host.read(f"{_PAM}/{service}") or ""):
        words = line.split("#")[0].split()
        if words[:1] == ["@include"] or words[1:2] in (["include"], ["substack"]):
            if depth and len(words) > 1 and _applies_limits(host, words[-1], depth - 1):
                return True
        elif words and words[0].lstrip("-") == "session" and "pam_limits.so" in " ".join(words[1:]):
            return True
    return False


# Services ---------------------------------------------------------------------------------------------------------


def check_services(host: Host, ask: Ask | None) -> Iterator[Row]:
    """What systemd gives a service. `ask`: the running systemd's own answer about a setting; None in an image."""
    said = tuple(_manager_settings(host))
    for limit in settings.SERVICE_LIMITS:
        least = None if limit.soft == settings.UNLIMITED else int(limit.soft)
        what, expected = f"services: {limit.item}", _text(least)
        typed, soft = _last_readable(said, limit)
        if typed is None:
            verdict = WARNING if switched_off(host, settings.SYSTEMD_FILE) else WRONG
            yield Row(what, expected, "systemd's own", verdict, restore(host, settings.SYSTEMD_FILE))
            continue
        shown = f"{typed.text} ({typed.origin})"
        if not _reaches(soft, least):
            reload = "; systemctl daemon-reload" if ask else ""
            yield Row(what, expected, shown, WRONG, comment_out([typed.origin]) + reload)
            continue
        answer = ask(f"{limit.setting}Soft") if ask else None
        if answer is None:
            yield Row(what, expected, shown)
        elif _reaches(None if answer in ("infinity", _INFINITY) else _number(answer), least):
            yield Row(what, expected, answer)
        else:
            yield Row(what, expected, f"{answer}, from before the files changed", WRONG, "systemctl daemon-reload")


def _last_readable(
    said: Sequence[tuple[str, dropins.Said]], limit: settings.ServiceLimit
) -> tuple[dropins.Said | None, int | None]:
    """What counts of a limit's settings, and its soft limit; None where systemd can read none of them."""
    for name, typed in reversed(said):
        if name == limit.setting:
            try:
                return typed, dropins.parse_rlimit(typed.text, units=limit.item == "memlock")[0]
            except ValueError:
                continue
    return None, None


def _manager_settings(host: Host) -> Iterator[tuple[str, dropins.Said]]:
    main = next((path for folder in dropins.FOLDERS if host.exists(path := f"{folder}/systemd/system.conf")), None)
    places = [f"{folder}/systemd/system.conf.d" for folder in dropins.FOLDERS]
    folders = {place: host.names(place) for place in places}
    for path in ([main] if main else []) + list(dropins.order(folders)):
        yield from dropins.parse_manager(host.read(path) or "", path)


def ask_systemd(setting: str) -> str | None:
    """What the running systemd says of one of its settings; None where none answers."""
    import subprocess

    command = ["systemctl", "show", "--property", setting, "--value"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


# Numbers ----------------------------------------------------------------------------------------------------------


def _wanted() -> Iterator[tuple[str, int | None]]:
    for item in dict.fromkeys(limit.item for limit in settings.LIMITS):
        value = next(limit.value for limit in settings.LIMITS if limit.item == item)
        yield item, None if value == settings.UNLIMITED else int(value)


def _reaches(limit: int | None, least: int | None) -> bool:
    return limit is None or (least is not None and limit >= least)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def _text(limit: int | None) -> str:
    return settings.UNLIMITED if limit is None else str(limit)


def _shown(line: pamlimits.Line) -> str:
    return _text(line.limit)
