"""How QEMU is started: from its own root, in a mount namespace that ends with it, with two sockets to talk through."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import children
from .channel import Channel
from .image import BootImage
from .machine import Machine, Places, render_arguments
from .qmp import Qmp

RUN = "/guest"  # the folder of the run, as QEMU sees it
TO_FILE = f"file,id=console,path={RUN}/console.log"
TO_TERMINAL = f"stdio,id=console,mux=on,signal=off,logfile={RUN}/console.log"

# Arguments: QEMU's root, the folder of the run, pairs of a file and its name under /images, --, QEMU's command.
_ENTER = r"""
root=$1 run=$2; shift 2
mount --rbind /dev "$root/dev"
mount --bind "$run" "$root/guest"
mount -t tmpfs images "$root/images"
while [ "$1" != -- ]; do
    : >"$root/images/$2"
    mount --bind "$1" "$root/images/$2"
    shift 2
done
shift
TMPDIR=/guest exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Emulator:
    """A running QEMU."""

    process: subprocess.Popen[bytes]
    channel: Channel
    qmp: Qmp

    def stop(self) -> None:
        children.stop(self.process)
        self.channel.close()
        self.qmp.close()


def launch(root: Path, image: BootImage, machine: Machine, run: Path, console: str) -> Emulator:
    """Start `machine` from `image`. `run` gets console.log and qemu.log, and holds the sockets of its functions.

    The sockets are handed over connected, so nobody has to wait for QEMU to make them.
    """
    (runner, runner_inside), (qmp, qmp_inside) = socket.socketpair(), socket.socketpair()
    with runner_inside, qmp_inside:
        descriptors = runner_inside.fileno(), qmp_inside.fileno()
        disks = {f"disk{number}": path for number, path in enumerate(machine.disks)}
        boot = {"kernel": image.kernel, "initrd": image.initrd} if image.kernel and image.initrd else {}
        files = {"root": image.root, **boot, **disks}
        pairs = [text for name, path in files.items() for text in (str(path.resolve()), name)]
        seen = {name: f"/images/{name}" for name in files}
        direct = tuple(seen[name] for name in boot)
        places = Places(direct, seen["root"], RUN, tuple(seen[name] for name in disks))
        qemu = render_arguments(machine, places, console, *descriptors)
        enter = ["unshare", "--mount", "sh", "-euc", _ENTER, "sh", str(root), str(run), *pairs]
        ours = None if console == TO_TERMINAL else subprocess.DEVNULL
        process = children.start(
            [*enter, "--", "qemu-system-x86_64", *qemu],
            run / "qemu.log",
            pass_fds=descriptors,
            stdin=ours,
            stdout=ours,
        )
    return Emulator(process, Channel(runner), Qmp(qmp))
