# SPDX-License-Identifier: MIT
"""virtiofsd: shares a folder of the host with a guest, over a socket and the guest's memory."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from machine import MORTAL, Failure, log, program

SECONDS = 60  # to start, on a machine that is busy


class Share:
    def __init__(self, folder):
        if os.getuid():
            log("SKIP: virtiofsd needs root")
            sys.exit(4)
        self.folder = folder

    def __enter__(self):
        self.work = tempfile.TemporaryDirectory(prefix="vpmu-virtiofs-")
        self.socket = self.work.name + "/socket"
        # chroot: containers often have no right to make the namespaces of the default.
        self.process = subprocess.Popen([*MORTAL, program("virtiofsd"), f"--socket-path={self.socket}", "-o", f"source={self.folder}",
                                         "-o", "sandbox=chroot", "-o", "cache=auto"], start_new_session=True,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + SECONDS
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise Failure("virtiofsd does not start")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.work.cleanup()

    def arguments(self):
        """For a machine whose memory is shared."""
        return ["-chardev", f"socket,id=share,path={self.socket}", "-device", "vhost-user-fs-pci,chardev=share,tag=host"]
