"""What may the agent do to the machine it runs on? The only place that opens files of the host.

`Host(root)` is everything below one folder: `/` on a real machine, a prepared folder in a test or a demonstration.
Paths given to its methods are absolute paths of that machine. Imported by every command, so it imports little.
"""

from __future__ import annotations

import errno
import os

from tpuagent.errors import ModuleUnavailable, NotPermitted
from tpuagent.filelock import FileLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 65536
MOST_LINKS = 40  # as the kernel has it
MODPROBE_LIMIT_S = 60
# What the kernel answers for something that went away between two looks: the file, the device behind it, the process.
GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR, errno.ESRCH})


class Host:
    """The machine below one root."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def at(self, path: str) -> str:
        """Where a path of the machine really is."""
        return path if self.root == "/" else self.root.rstrip("/") + path

    # Looking ------------------------------------------------------------------------------------------------------

    def read(self, path: str, errors: str = "replace") -> str | None:
        """The file's text without trailing white space; None when it is not there (any more).

        `errors` is what happens to bytes that are not UTF-8, as in bytes.decode.
        """
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", errors).rstrip()

    def attribute(self, path: str) -> str | None:
        """As `read`, for an attribute of sysfs: it is one page at most, and whole in the first read."""
        data = self._read(path, whole=False)
        return None if data is None else data.decode("utf-8", "replace").rstrip()

    def read_bytes(self, path: str) -> bytes | None:
        """The file's bytes, all of them; None when it is not there (any more)."""
        return self._read(path, whole=True)

    def _read(self, path: str, *, whole: bool) -> bytes | None:
        try:
            descriptor = os.open(self.at(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = part = os.read(descriptor, CHUNK)
                while part and whole:
                    part = os.read(descriptor, CHUNK)
                    data += part
                return data
            finally:
                os.close(descriptor)
        except OSError as fault:
            if fault.errno in GONE:
                return None
            raise

    def link(self, path: str) -> str | None:
        """Where a symbolic link points; None when there is none."""
        try:
            return os.readlink(self.at(path))
        except OSError as fault:
            if fault.errno == errno.EINVAL or fault.errno in GONE:  # EINVAL: there, but not a link
                return None
            raise

    def resolve(self, path: str) -> str:
        """The path behind the symbolic links that stand at the end of a path, whether there is a file or not."""
        for _ in range(MOST_LINKS):
            target = self.link(path)
            if target is None:
                return path
            path = os.path.normpath(os.path.join(os.path.dirname(path), target))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; empty when there is no such folder."""
        try:
            return sorted(os.listdir(self.at(path)))
        except OSError as fault:
            if fault.errno in GONE:
                return []
            raise

    def stat(self, path: str, *, follow: bool = False) -> os.stat_result | None:
        """What the file system says of a file; None when it is not there."""
        try:
            return os.stat(self.at(path), follow_symlinks=follow)
        except OSError as fault:
            if fault.errno in GONE:
                return None
            raise

    def exists(self, path: str) -> bool:
        """Whether something has this name; a dangling link has it too."""
        return self.stat(path) is not None

    # Changing -----------------------------------------------------------------------------------------------------

    def require_root(self, what: str) -> None:
        """Refuse early and in plain words what would otherwise fail half-way."""
        if os.geteuid() != 0:
            raise NotPermitted(what, "only root may; run it with sudo (EPERM)")

    def write_attribute(self, path: str, text: str) -> None:
        """Give a sysfs attribute a value, and raise the kernel's own OSError if it refuses.

        Exactly one write and no O_CREAT: a second write would be a second command, buffering would report the error
        at close or not at all, and a create flag turns "no such attribute" into "permission denied".
        """
        descriptor = os.open(self.at(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def set_access(self, path: str, mode: int, uid: int, gid: int) -> None:
        """Give a device node its owner and mode. Raises OSError."""
        os.chown(self.at(path), uid, gid, follow_symlinks=False)
        os.chmod(self.at(path), mode)

    def replace(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a whole new file of the caller's own in the place of the old one, as `swap` does."""
        self.swap(path, text.encode(), mode, os.geteuid(), os.getegid())

    def swap(self, path: str, data: bytes, mode: int, uid: int, gid: int) -> None:
        """Put a whole new file in the place of the old one: a reader sees the old bytes or the new, never a part.

        Safe in a folder that is another user's: no link there is ever followed. Folders that are missing are made, the
        last one for the same owner. Raises OSError; the old file is then whole.
        """
        target = self.at(path)
        self._make_folder(os.path.dirname(target), uid, gid)
        draft = f"{target}.{os.getpid()}.new"
        self._forget(draft)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchown(descriptor, uid, gid)
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.rename(draft, target)
        except OSError:
            os.unlink(draft)
            raise

    @staticmethod
    def _forget(place: str) -> None:
        try:
            os.unlink(place)
        except FileNotFoundError:
            pass

    def _make_folder(self, folder: str, uid: int, gid: int) -> None:
        if os.path.isdir(folder):
            return
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.mkdir(folder)
        os.chmod(folder, 0o755)  # whatever the caller's umask is: users read what is in it
        os.chown(folder, uid, gid)

    def remove(self, path: str) -> None:
        """Delete a file of the agent's own; nothing happens when it is not there."""
        self._forget(self.at(path))

    def lock(self, path: str, limit_s: float) -> FileLock:
        """A lock between processes, to be used in a `with` statement; DeadlinePassed when another holds it so long."""
        return FileLock(self.at(path), limit_s)

    def load_module(self, name: str) -> None:
        """Ask modprobe for a kernel module; ModuleUnavailable with what modprobe said."""
        import subprocess  # costs more than the rest of this module, and most commands load nothing

        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["modprobe", "--", name],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=MODPROBE_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise ModuleUnavailable(f"load module {name}", str(fault)) from fault
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise ModuleUnavailable(
                f"load module {name}",
                f"{said[-1] if said else 'modprobe failed'}; install the modules of kernel {self.kernel_release()}"
                " (Ubuntu: linux-modules-extra, Debian: linux-image)",
            )

    # Knowing ------------------------------------------------------------------------------------------------------

    def kernel_release(self) -> str:
        """What `uname -r` prints."""
        return os.uname().release

    def machine(self) -> str:
        """What `uname -m` prints."""
        return os.uname().machine

    def group_id(self, name: str) -> int | None:
        """The number of a group of users, given by name or number; None when there is no such group."""
        if name == "root":  # 0 by the LSB; asking the C library for it costs as much as looking at a function
            return 0
        if name.isdecimal():
            return int(name)
        import grp

        try:
            return grp.getgrnam(name).gr_gid
        except KeyError:
            return None

    def user_ids(self, name: str) -> tuple[int, int] | None:
        """The numbers of a user, given by name or number, and of that user's group; None when there is none."""
        import pwd

        try:
            entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
        except KeyError:
            return None

    def processes(self) -> Iterator[int]:
        """The ids of the processes that run now."""
        return (int(name) for name in self.names("/proc") if name.isdecimal())
