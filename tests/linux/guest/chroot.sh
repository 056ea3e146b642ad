# SPDX-License-Identifier: MIT
# Runs a script of this folder (script=NAME) with the host's programs, which are mounted read-only over virtiofs. It finds
# the test programs at /tmp, where it may write.
. /tests/host.sh
modprobe msr allow_writes=on
echo -1 >/proc/sys/kernel/perf_event_paranoid # Debian's default is 3; PAPI and rr ask
# Time that a busy host takes away in the middle of a sample looks like a dear one: the kernel lowers the rate for good, down to one
# sample a tick. An event that is open by then finds nothing but the tick, and does not count between an overflow and the next.
echo 100000 >/proc/sys/kernel/perf_event_max_sample_rate
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
cp "/tests/$script.sh" /bin/work /bin/spin /bin/threads /bin/signals /mnt/tmp
all=$all chroot /mnt /bin/bash "/tmp/$script.sh" || exit 1
