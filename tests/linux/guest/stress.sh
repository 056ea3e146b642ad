# SPDX-License-Identifier: MIT
# stress-ng of the host's file system, mounted read-only over virtiofs, with its verification on.
. /tests/host.sh
chroot /mnt /usr/bin/stress-ng --cpu 2 --vm 2 --vm-bytes 64M --fork 2 --pipe 2 --switch 2 --verify \
	--temp-path /tmp --timeout "${seconds:-60}" --metrics-brief
