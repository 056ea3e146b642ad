# SPDX-License-Identifier: MIT
"""A suite for vpmu check: loops of a known number of instructions."""

import re
import shutil
import subprocess
import tempfile

from command import vpmu

# A loop that calls a function, and the end. Without libc, or with it, whose own counts must not change with the program.
PROGRAM = """
	.globl %(entry)s, turn
%(entry)s:	push %%rbx
	mov $%(turns)u, %%ebx
1:	call turn
	dec %%ebx
	jnz 1b
	pop %%rbx
	xor %%eax, %%eax
	%(end)s
turn:	.rept %(length)u
	nop
	.endr
	ret
	.section .note.GNU-stack
"""
ALONE = {"entry": "_start", "end": "mov $60, %eax; xor %edi, %edi; syscall"}
WITH_LIBC = {"entry": "main", "end": "ret"}


def turns(number):
    return 1000 + 7 * number


class Suite:
    """A folder with a suite, as a user's repository has it."""

    def __init__(self, count):
        self.count = count
        self.folder = tempfile.mkdtemp(prefix="vpmu-check-test-")
        self.names = [f"loop{i}" for i in range(count)]
        for i in range(count):
            self.build(i, 3 + i)
        self.write("".join(self.benchmark(name) for name in self.names))

    def benchmark(self, name, more=""):
        return f'[[benchmark]]\nname = "{name}"\ncommand = ["./{name}"]\n{more}\n'

    def build(self, number, length):
        with_libc = number == self.count - 1
        program = PROGRAM % dict(WITH_LIBC if with_libc else ALONE, turns=turns(number), length=length)
        subprocess.run(["gcc", *([] if with_libc else ["-nostdlib", "-static"]), "-x", "assembler", "-", "-o",
                        f"{self.folder}/loop{number}"], input=program, text=True, check=True)

    def write(self, text):
        with open(f"{self.folder}/vpmu-check.toml", "w", encoding="utf-8") as file:
            file.write("timeout = 200\n" + text)

    def change_baseline(self, old, new):
        path = f"{self.folder}/vpmu-check.baseline"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(old, new, text))

    def check(self, *arguments, **keywords):
        return vpmu("check", *arguments, cwd=self.folder, **keywords)

    def remove(self):
        shutil.rmtree(self.folder)
