# SPDX-License-Identifier: MIT
"""Installations of vpmu that lack something, for tests of what it says then."""

import os
import shutil
import subprocess
import tempfile
import unittest

from command import BUILD, TOP, environment


def package(kernel):
    """The name that a kernel's package has in the host's release."""
    return subprocess.check_output([TOP + "/scripts/vpmu-release", "kernel", kernel], text=True).strip()


class Folder(unittest.TestCase):
    """A test with a folder of its own, which others may read and which has a blank in its name."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="vpmu messages ")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder)

    def install(self, *parts):
        """An installation of these parts only; returns its vpmu."""
        for part in parts:
            source, target = os.path.join(BUILD, part), os.path.join(self.folder, part)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)
        return self.folder + "/vpmu"

    def nothing_cached(self, **changes):
        """An environment in which no kernel was ever fetched."""
        return environment(XDG_CACHE_HOME=self.folder + "/cache", HOME=self.folder, **changes)

    def says(self, result, code, *messages):
        for message in messages:
            self.assertIn(message, result.stderr + result.stdout)
        self.assertEqual(result.returncode, code, result.stderr)

    def disk(self, size):
        """A disk of this size, empty."""
        path = self.folder + "/disk"
        os.mkdir(path)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "disk", path], stderr=subprocess.PIPE,
                                 text=True)
        if mounted.returncode:
            self.skipTest("cannot mount here: " + mounted.stderr)
        self.addCleanup(subprocess.run, ["umount", path])
        return path
