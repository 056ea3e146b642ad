# SPDX-License-Identifier: MIT
"""Runs in a guest: opens k counters for this task, then `turns` times gives the last one another period, for which the
kernel stops all counters of the PMU and starts them again.

usage: toggle.py K TURNS"""

import ctypes
import fcntl
import struct
import sys

PERF_EVENT_OPEN, TYPE_RAW = 298, 4
SET_PERIOD = 0x40082404
PERIOD = 1 << 40
EXCLUDE_KERNEL = 1 << 5
CONFIGS = [0xC0, 0x76, 0xC2, 0xC3, 0x0729, 0x0129]  # AMD: instructions, cycles, branches, misses, dispatched loads and stores

libc = ctypes.CDLL(None, use_errno=True)


def open_counter(config):
    attr = struct.pack("IIQQQQQ", TYPE_RAW, 112, config, PERIOD, 0, 0, EXCLUDE_KERNEL).ljust(112, b"\0")
    fd = libc.syscall(PERF_EVENT_OPEN, attr, 0, -1, -1, 0)
    if fd < 0:
        sys.exit(f"perf_event_open: errno {ctypes.get_errno()}")
    return fd


k, turns = int(sys.argv[1]), int(sys.argv[2])
counters = [open_counter(config) for config in CONFIGS[:k]]
for turn in range(turns):
    fcntl.ioctl(counters[-1], SET_PERIOD, struct.pack("Q", PERIOD + turn))
