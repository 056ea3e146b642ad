# SPDX-License-Identifier: MIT
# Runs a script of this folder (script=NAME) with the host's programs, which are mounted read-only over virtiofs. It finds
# the test programs at /tmp, where it may write.
. /tests/host.sh
modprobe msr allow_writes=on
echo -1 >/proc/sys/kernel/perf_event_paranoid # Debian's default is 3; PAPI and rr ask
cp "/tests/$script.sh" /bin/work /bin/spin /bin/threads /bin/signals /mnt/tmp
all=$all chroot /mnt /bin/bash "/tmp/$script.sh" || exit 1
