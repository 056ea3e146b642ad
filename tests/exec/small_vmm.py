# SPDX-License-Identifier: MIT
"""A VMM that opens its disk image before it makes a VM, as often as there are low numbers for descriptors, and runs a guest up to
its HLT. Says, line by line, which of its memory is the image's while the VM is there.

    python3 small_vmm.py IMAGE"""

import ctypes
import fcntl
import mmap
import os
import struct
import sys

KVM_CREATE_VM, KVM_CREATE_VCPU, KVM_RUN, KVM_GET_VCPU_MMAP_SIZE = 0xae01, 0xae41, 0xae80, 0xae04
KVM_SET_USER_MEMORY_REGION, KVM_SET_REGS, KVM_GET_SREGS, KVM_SET_SREGS = 0x4020ae46, 0x4090ae82, 0x8138ae83, 0x4138ae84
KVM_EXIT_HLT = 5
LOW = 16
LOOP = bytes.fromhex("b90001 49 75fd f4")  # mov $256, %cx; 1: dec %cx; jnz 1b; hlt


def run(memory):
    kvm = os.open("/dev/kvm", os.O_RDWR)
    vm = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
    memory[:len(LOOP)] = LOOP
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(vm, KVM_SET_USER_MEMORY_REGION, struct.pack("IIQQQ", 0, 0, 0, len(memory), address))
    vcpu = fcntl.ioctl(vm, KVM_CREATE_VCPU, 0)
    state = mmap.mmap(vcpu, fcntl.ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0))
    sregs = bytearray(fcntl.ioctl(vcpu, KVM_GET_SREGS, bytes(312)))
    sregs[:8], sregs[12:14] = bytes(8), bytes(2)  # CS: base and selector
    fcntl.ioctl(vcpu, KVM_SET_SREGS, bytes(sregs))
    fcntl.ioctl(vcpu, KVM_SET_REGS, struct.pack("18Q", *[0] * 17, 2))
    fcntl.ioctl(vcpu, KVM_RUN, 0)
    assert struct.unpack_from("I", state, 8)[0] == KVM_EXIT_HLT


image = sys.argv[1]
while os.open(image, os.O_RDWR) < LOW:
    pass
run(mmap.mmap(-1, 1 << 20))
with open("/proc/self/maps") as maps:
    print(*(line for line in maps if image in line), sep="", end="")
