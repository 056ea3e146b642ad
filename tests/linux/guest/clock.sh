# SPDX-License-Identifier: MIT
# Says when a second of busybox's date begins, for as long as the host listens: an edge is as exact as a fork is short.
seconds=${seconds:-60}
end=$(($(date +%s) + seconds + 2))
now=0
while [ "$now" -lt $end ]; do
	last=$(date +%s)
	while now=$(date +%s); [ "$now" = "$last" ]; do
		:
	done
	echo "edge $now"
	sleep 0.8
done
