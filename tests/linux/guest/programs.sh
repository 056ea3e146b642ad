# SPDX-License-Identifier: MIT
# Programs of the host, mounted read-only over virtiofs, as tests/linux/programs lists them.
. /tests/host.sh
chroot /mnt /bin/bash "$script" || exit 1
