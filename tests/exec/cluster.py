# SPDX-License-Identifier: MIT
"""A cluster of Slurm's with two nodes on this machine: munged, slurmctld and two slurmd of Debian's packages, unpacked below
build/ and run as the user that runs the test, with all their files in one folder. A keeper process is the parent of all of them: when
the test ends, however that may be, its pipe to the keeper is closed, and the keeper ends everything below it."""

import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from command import BUILD, SECONDS, children

PACKAGES = ["munge", "slurmctld", "slurmd", "slurm-client"]
PR_SET_CHILD_SUBREAPER = 36
NODES = ["node1", "node2"]

# Limits are those of a machine that is too busy. A task that is queued again may start when its credentials have expired.
CONFIGURATION = """
ClusterName=vpmu
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
{bound}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=20
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
MessageTimeout=60
TCPTimeout=60
SlurmdTimeout=600
BatchStartTimeout=600
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2
NodeName=node1 NodeHostname={host} NodeAddr={address} Port={ports[1]} CPUs=2
NodeName=node2 NodeHostname={host} NodeAddr={address} Port={ports[2]} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Missing(Exception):
    """Why there can be no cluster here."""


def apt(*words, **keywords):
    user = subprocess.check_output(["id", "-un"], text=True).strip()
    return subprocess.run(["apt-get", "-o", f"APT::Sandbox::User={user}", "-o", "Acquire::Retries=0", "-q=2", *words], text=True,
                          timeout=120, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **keywords).stdout


def unpack():
    """The folder of Slurm's packages, and of those that they need and this machine does not have."""
    folder = BUILD + "/slurm"
    if not os.path.exists(folder + "/tree"):
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted test has left
        os.makedirs(folder)
        try:
            new = re.findall(r"^Inst (\S+) \(", apt("install", "--simulate", "--no-install-recommends", *PACKAGES), re.M)
            apt("download", *sorted({*PACKAGES, *new}), cwd=folder)
        except (OSError, subprocess.SubprocessError):
            raise Missing("apt cannot download the packages of Slurm") from None
        for name in filter(lambda name: name.endswith(".deb"), os.listdir(folder)):
            subprocess.run(["dpkg-deb", "-x", f"{folder}/{name}", folder + "/new"], check=True)
            os.remove(f"{folder}/{name}")
        os.rename(folder + "/new", folder + "/tree")
    return folder + "/tree"


def free_ports(count):
    """Below those that the kernel gives to connections: nothing takes one before its server does, but for another server."""
    ports = []
    while len(ports) < count:
        port = random.randrange(10000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def own_address():
    """Our name, an address for servers, and the option that has them listen there alone: they ask for the address of their name,
    which must not be one that others reach."""
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = ""
    if address.startswith("127."):
        return host.split(".")[0], address, "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"
    return host.split(".")[0], "127.0.0.1", ""


class Cluster:
    def __init__(self):
        self.tree = unpack()
        self.folder = tempfile.mkdtemp(prefix="vpmu-slurm-", dir="/tmp")  # a socket's path is short
        os.chmod(self.folder, 0o755)  # munge wants to be reached
        self.libraries = self.tree + "/usr/lib/x86_64-linux-gnu"
        self.keeper = None
        try:
            self.configure()
            self.start()
        except BaseException:
            self.close()
            raise

    def configure(self):
        user = subprocess.check_output(["id", "-un"], text=True).strip()
        for name in "state", "bin", "sbin", *NODES:
            os.mkdir(f"{self.folder}/{name}")
        for name in "slurmctld", "slurmd", "slurmstepd":  # which know themselves by these names
            os.symlink(f"{self.tree}/usr/sbin/{name}-wlm", f"{self.folder}/sbin/{name}")
        host, address, bound = own_address()
        text = CONFIGURATION.format(host=host, address=address, bound=bound, user=user, folder=self.folder,
                                    plugins=self.libraries + "/slurm-wlm", ports=free_ports(3))
        self.write("slurm.conf", text)
        away = re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=9", text)  # where nothing listens
        self.write("away/slurm.conf", away.replace("MessageTimeout=60", "MessageTimeout=2"))
        with open(os.open(self.folder + "/munge.key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(128))
        for name in "sbatch", "squeue", "scancel", "scontrol", "sinfo":
            self.write("bin/" + name, f'#!/bin/sh\nLD_LIBRARY_PATH={self.library_path()} exec {self.tree}/usr/bin/{name} "$@"\n', 0o755)
        version = self.run("scontrol", "--version").stdout
        if not re.match(r"slurm\S* \d+\.", version):
            raise Missing("Slurm does not start here: " + version)
        if int(re.search(r"\d+", version)[0]) > 22:
            self.write("cgroup.conf", "CgroupPlugin=disabled\n")  # which earlier ones do not know, nor want cgroups

    def write(self, name, text, mode=0o644):
        os.makedirs(os.path.dirname(f"{self.folder}/{name}"), exist_ok=True)
        with open(os.open(f"{self.folder}/{name}", os.O_WRONLY | os.O_CREAT, mode), "w") as file:
            file.write(text)

    def library_path(self):
        return f"{self.libraries}:{self.libraries}/slurm-wlm"

    def environment(self, **changes):
        return dict(os.environ, SLURM_CONF=self.folder + "/slurm.conf", PATH=f"{self.folder}/bin:{os.environ['PATH']}", **changes)

    def start(self):
        self.keeper = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, text=True, start_new_session=True,
                                       env=self.environment(LD_LIBRARY_PATH=self.library_path()))
        folder, sbin = self.folder, self.folder + "/sbin"
        self.daemon("munged", self.tree + "/usr/sbin/munged", "--foreground", "--origin=127.0.0.1", f"--key-file={folder}/munge.key",
                    f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed",
                    f"--log-file={folder}/munge.log")
        self.wait(lambda: os.path.exists(folder + "/munge.socket"))
        self.daemon("slurmctld", sbin + "/slurmctld", "-D")
        self.wait(lambda: "is UP" in self.run("scontrol", "ping").stdout)
        for name in NODES:
            self.daemon(name, sbin + "/slurmd", "-D", "-N", name, "-d", sbin + "/slurmstepd")
        self.wait(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"])

    def daemon(self, name, *words):
        print(f"{self.folder}/{name}.log", *words, sep="\t", file=self.keeper.stdin, flush=True)

    def wait(self, condition):
        end = time.monotonic() + 60
        while not condition():
            if time.monotonic() > end or self.keeper.poll() is not None:
                raise Missing("Slurm does not start here: " + self.last_words())
            time.sleep(0.1)

    def last_words(self):
        words = []
        for name in "munged", "slurmctld", *NODES:
            try:
                with open(f"{self.folder}/{name}.log", errors="replace") as file:
                    words += [f"{name}: {line.strip()}" for line in file if re.search("error|fatal", line, re.I)][-1:]
            except OSError:
                words.append(f"no {name}")
        return "; ".join(words)

    def run(self, *words):
        return subprocess.run([f"{self.folder}/bin/{words[0]}", *words[1:]], env=self.environment(), text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)

    def close(self):
        if self.keeper:
            self.keeper.stdin.close()
            self.keeper.wait(SECONDS)
        shutil.rmtree(self.folder)


def keep():
    """Starts the commands that come in lines, each with the file for what it says. At the end of the input, ends all processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for line in sys.stdin:
        path, *words = line.rstrip("\n").split("\t")
        with open(path, "w") as log:
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while True:
        for pid in children(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    keep()
