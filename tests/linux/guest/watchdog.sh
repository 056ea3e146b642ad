# SPDX-License-Identifier: MIT
# The NMI watchdog is a counter of cycles that overflows on every CPU that is busy for a second's worth of them. When it
# has, CPU 0 goes on spinning in user mode until the host has done what it wants.
dmesg | grep 'NMI watchdog: Enabled. Permanently consumes one hw-PMU counter' || exit 1
echo 1 >/proc/sys/kernel/watchdog_thresh
# On a busy host NMIs seem to take long, and the kernel allows fewer. At one a tick it throttles the watchdog's counter with its next NMI,
# while watchdog_overflow_callback() sees to it that it is not known as throttled: it never counts again.
echo 100000 >/proc/sys/kernel/perf_event_max_sample_rate
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
taskset -p 2 $$ >/dev/null # CPU 0 is for the one that spins: whoever else it meets would enter the kernel, and hear
nmis() {
	awk '/NMI:/ { print $2, $3 }' /proc/interrupts
}
before=$(nmis)
taskset 1 /bin/spin 1000000000000 &
taskset 2 /bin/spin 1000000000000 &
other=$!
until [ "$(echo "$before $(nmis)" | awk '{ print ($3 > $1 + 1 && $4 > $2 + 1) }')" = 1 ]; do
	sleep 0.5
done
kill $other
echo "NMIs $before, now $(nmis)"
while :; do
	sleep 1
done
