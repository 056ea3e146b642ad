# SPDX-License-Identifier: MIT
# Counts once in peace, then again and again, until the host has moved the machine as often as it wants and says so: the
# word "enough". What is counted must be the same each time.
(
	while read -r word; do
		[ "$word" != enough ] || touch /tmp/enough
	done
) </dev/console &
# Linux stops an event for a while whose interrupts take long, as they do on a busy host.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
expected=$(/bin/migrate "$rounds") || exit 1
echo "expected $expected"
number=0
until [ -e /tmp/enough ]; do
	number=$((number + 1))
	echo "begin $number"
	counted=$(/bin/migrate "$rounds") || exit 1
	echo "counted $number $counted"
	[ "$counted" = "$expected" ] || exit 1
done
