# SPDX-License-Identifier: MIT
# Not a test: mounts the host's files read-only at /mnt, with what is not to be shared on top, ready for chroot.
modprobe -a virtio_pci virtiofs
mount -t virtiofs -o ro host /mnt || exit 1
mount -t tmpfs tmp /mnt/tmp
mount -t proc proc /mnt/proc
mount -t sysfs sys /mnt/sys
mount --bind /dev /mnt/dev
mkdir -p /mnt/dev/shm
mount -t tmpfs shm /mnt/dev/shm
