# Counts on the console until the host has done what it wants to do with the machine, and says so on it: the word
# "enough". Checks on the way that time goes forward and memory keeps its content.
dd if=/dev/urandom of=/tmp/block bs=1M count=8 2>/dev/null
sum=$(md5sum </tmp/block)
(
	while read -r word </dev/console; do
		[ "$word" != enough ] || touch /tmp/enough
	done
) &
count=0
last=0
until [ -e /tmp/enough ]; do
	count=$((count + 1))
	echo "tick $count"
	[ "$(md5sum </tmp/block)" = "$sum" ] || exit 1
	now=$(cut -d. -f1 /proc/uptime)
	[ "$now" -ge "$last" ] || exit 1
	last=$now
	sleep 0.2
done
